package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// hostEtcFiles are those of a jail in the host's network: it finds names where the host does.
func hostEtcFiles() (map[string]string, error) {
	files := maps.Clone(etcFiles)
	files["nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
	for _, name := range []string{"resolv.conf", "hosts"} {
		text, err := os.ReadFile(filepath.Join("/etc", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = string(text[:min(len(text), maxEtcFile)])
	}
	return files, nil
}

// maxEtcFile keeps what is copied bounded, should somebody's /etc hold a large file under one of the names.
const maxEtcFile = 16 << 20

// thing is a file, folder or link of the host's /etc.
type thing struct {
	path string // below /etc
	link string
	info fs.FileInfo
}

// etc makes the /etc of jails below dir. The folder is named by what it was made of, so that it never changes under a jail, and is
// made once for as long as the host's stays the same: some hundred files are slow to copy.
func etc(dir string, files map[string]string) (string, error) {
	var things []thing
	for _, name := range etcNames {
		var err error
		if things, err = gather(things, name); err != nil {
			return "", err
		}
	}
	sum := sha256.New()
	for _, t := range things {
		fmt.Fprintln(sum, t.path, t.link, t.info.Mode(), t.info.Size(), t.info.ModTime().UnixNano())
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintln(sum, name, files[name])
	}
	path := filepath.Join(dir, "etc-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	tmp, err := os.MkdirTemp(dir, "etc-*.tmp")
	if err != nil {
		return "", err
	}
	err = fillEtc(tmp, things, files)
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

// gather lists what everybody may read. Links are kept as they are: they lead into /usr, or nowhere. Those to manuals are left
// out: they are most of Debian's alternatives.
func gather(things []thing, name string) ([]thing, error) {
	err := filepath.WalkDir(filepath.Join("/etc", name), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil || strings.HasSuffix(path, ".gz") {
			return err
		}
		t := thing{path: strings.TrimPrefix(path, "/etc/")}
		if t.info, err = e.Info(); err != nil {
			return err
		}
		switch mode := t.info.Mode(); {
		case mode&fs.ModeSymlink != 0:
			if t.link, err = os.Readlink(path); err != nil {
				return err
			}
		case mode.IsDir():
		case !mode.IsRegular(), mode.Perm()&0o004 == 0, t.info.Size() > maxEtcFile:
			return nil
		}
		things = append(things, t)
		return nil
	})
	return things, err
}

func fillEtc(dir string, things []thing, files map[string]string) error {
	for _, t := range things {
		if err := t.copy(dir); err != nil {
			return err
		}
	}
	for _, link := range [][2]string{{"passwd", "/run/passwd"}, {"group", "/run/group"}, {"mtab", "/proc/self/mounts"}} {
		if err := os.Symlink(link[1], filepath.Join(dir, link[0])); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (t *thing) copy(dir string) error {
	target := filepath.Join(dir, t.path)
	if t.info.IsDir() {
		return os.MkdirAll(target, 0o755)
	}
	// The names are nested, and their own folders are not among what was gathered.
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if t.link != "" {
		return os.Symlink(t.link, target)
	}
	b, err := os.ReadFile(filepath.Join("/etc", t.path))
	if err != nil {
		return err
	}
	return os.WriteFile(target, b, 0o644)
}
