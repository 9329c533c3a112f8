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

// etcNames are the files and folders of the host's /etc that jails get a copy of: what the loader, TLS, time zones and Debian's
// alternatives need, and nothing that identifies the users of this machine.
var etcNames = []string{
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf", "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust/extracted",
	"alternatives", "localtime", "timezone", "mime.types", "protocols", "services", "debian_version", "os-release",
	"inputrc", "terminfo", "python3", "java-17-openjdk", "java-21-openjdk",
}

// etcFiles are the files that differ from the host's. passwd and group are links, because each jail has its own.
var etcFiles = map[string]string{
	"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"hostname":      "sandbox\n",
	"resolv.conf":   "",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
	"host.conf":     "multi on\n",
}

// hostNetworkEtc is etcFiles for a jail in the host's network, which resolves names as the host does.
func hostNetworkEtc() (map[string]string, error) {
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

const maxEtcFile = 16 << 20

// etcFile is a file, folder or link of the host's /etc.
type etcFile struct {
	path string // below /etc
	link string // a link's target
	info fs.FileInfo
}

// copyEtc creates the /etc of jails below dir. The folder's name is a hash of its sources: it never changes under a jail, and is
// copied once while the host's /etc stays the same, because some hundred files are slow to copy.
func copyEtc(dir string, files map[string]string) (string, error) {
	var copies []etcFile
	for _, name := range etcNames {
		var err error
		if copies, err = appendEtc(copies, name); err != nil {
			return "", err
		}
	}
	sum := sha256.New()
	for _, f := range copies {
		fmt.Fprintln(sum, f.path, f.link, f.info.Mode(), f.info.Size(), f.info.ModTime().UnixNano())
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintln(sum, name, files[name])
	}
	path := filepath.Join(dir, "etc-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	err := createFolder(path, func(tmp string) error { return fillEtc(tmp, copies, files) })
	// The rename fails when another provider was faster: a folder with content cannot be replaced.
	if _, statErr := os.Lstat(filepath.Join(path, "passwd")); statErr == nil {
		return path, nil
	}
	return "", err
}

// createFolder creates a folder that has its name only once it is filled.
func createFolder(path string, fill func(tmp string) error) error {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "*.tmp")
	if err != nil {
		return err
	}
	if err = fill(tmp); err == nil {
		err = os.Chmod(tmp, 0o755)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(tmp))
	}
	return err
}

// appendEtc adds the files below name that every user may read. Links stay links: they lead into /usr, or nowhere. It skips links
// to manuals, which are most of Debian's alternatives.
func appendEtc(list []etcFile, name string) ([]etcFile, error) {
	err := filepath.WalkDir(filepath.Join("/etc", name), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil || strings.HasSuffix(path, ".gz") {
			return err
		}
		f := etcFile{path: strings.TrimPrefix(path, "/etc/")}
		if f.info, err = e.Info(); err != nil {
			return err
		}
		switch mode := f.info.Mode(); {
		case mode&fs.ModeSymlink != 0:
			if f.link, err = os.Readlink(path); err != nil {
				return err
			}
		case mode.IsDir():
		case !mode.IsRegular(), mode.Perm()&0o004 == 0, f.info.Size() > maxEtcFile:
			return nil
		}
		list = append(list, f)
		return nil
	})
	return list, err
}

func fillEtc(dir string, copies []etcFile, files map[string]string) error {
	for _, f := range copies {
		if err := f.copy(dir); err != nil {
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

func (f *etcFile) copy(dir string) error {
	target := filepath.Join(dir, f.path)
	if f.info.IsDir() {
		return os.MkdirAll(target, 0o755)
	}
	// Names like ssl/certs are nested, and the list does not hold their parents.
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if f.link != "" {
		return os.Symlink(f.link, target)
	}
	b, err := os.ReadFile(filepath.Join("/etc", f.path))
	if err != nil {
		return err
	}
	return os.WriteFile(target, b, 0o644)
}
