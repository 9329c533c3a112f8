package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// etcNames are the files and folders of the host's /etc that a jail gets a copy of: what the loader, TLS, time zones and
// Debian's alternatives need, and nothing that says who uses this machine.
var etcNames = []string{
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf", "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust/extracted",
	"alternatives", "localtime", "timezone", "mime.types", "protocols", "services", "debian_version", "os-release",
	"inputrc", "terminfo", "python3", "java-17-openjdk", "java-21-openjdk",
}

// etcFiles are written for the jail. passwd and group are links, since each jail has its own.
var etcFiles = map[string]string{
	"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"hostname":      "sandbox\n",
	"resolv.conf":   "",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
	"host.conf":     "multi on\n",
}

// maxEtcFile keeps what is copied bounded, should somebody's /etc hold a large file under one of the names.
const maxEtcFile = 16 << 20

// etc makes the /etc of jails below dir. The folder is named by what is in it, so that it never changes under a jail, and is made
// once for as long as the host's stays the same.
func etc(dir string) (string, error) {
	tmp, err := os.MkdirTemp(dir, "etc-*.tmp")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = fillEtc(tmp, sum)
	path := filepath.Join(dir, "etc-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if err == nil {
		err = os.Chmod(tmp, 0o755)
	}
	if err == nil {
		err = os.Rename(tmp, path)
		// A folder that has something in it cannot be replaced, and is the one that is wanted.
		if _, there := os.Lstat(filepath.Join(path, "passwd")); err != nil && there == nil {
			return path, os.RemoveAll(tmp)
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return path, nil
}

func fillEtc(dir string, sum io.Writer) error {
	for _, name := range etcNames {
		if err := copyTree("/etc", dir, name, sum); err != nil {
			return err
		}
	}
	for _, link := range [][2]string{{"passwd", "/run/passwd"}, {"group", "/run/group"}, {"mtab", "/proc/self/mounts"}} {
		if err := os.Symlink(link[1], filepath.Join(dir, link[0])); err != nil {
			return err
		}
	}
	names := make([]string, 0, len(etcFiles))
	for name := range etcFiles {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintln(sum, name, etcFiles[name])
		if err := os.WriteFile(filepath.Join(dir, name), []byte(etcFiles[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies what everybody may read. Links are kept as they are: they lead into /usr, or nowhere.
func copyTree(from, to, name string, sum io.Writer) error {
	return filepath.WalkDir(filepath.Join(from, name), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			return os.MkdirAll(target, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintln(sum, rel, link)
			return os.Symlink(link, target)
		case info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 && info.Size() <= maxEtcFile:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s %d %x\n", rel, len(b), sha256.Sum256(b))
			return os.WriteFile(target, b, 0o644)
		}
		return nil
	})
}
