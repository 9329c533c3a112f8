package projectquota

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests on the attributes of a file, and the attribute by which what is made in a folder gets its project: linux/fs.h.
const (
	getAttributes  = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes  = 0x401c5820 // FS_IOC_FSSETXATTR
	inheritProject = 0x200      // FS_XFLAG_PROJINHERIT
)

// attributes is struct fsxattr of linux/fs.h.
type attributes struct {
	Flags, ExtentSize, Extents, Project, CopyExtentSize uint32
	_                                                   [8]byte
}

// Commands of quotactl_fd for quotas of projects: linux/quota.h and linux/dqblk_xfs.h.
const (
	projectQuota   = 2                            // PRJQUOTA
	getQuota       = 0x800007<<8 | projectQuota   // Q_GETQUOTA
	setQuota       = 0x800008<<8 | projectQuota   // Q_SETQUOTA
	getQuotaState  = ('X'<<8|8)<<8 | projectQuota // Q_XGETQSTATV
	stateVersion   = 1                            // FS_QSTATV_VERSION1
	projectsHeld   = 1 << 5                       // FS_QUOTA_PDQ_ENFD
	limitsGiven    = 5                            // QIF_LIMITS
	quotaBlock     = 1024                         // QIF_DQBLKSIZE
	projectIDs     = 1 << 30                      // the ids are this and the 2^30 above it: those of administrators are small
	projectIDTries = 16
)

// diskQuota is struct if_dqblk of linux/quota.h. Limits of 0 are none.
type diskQuota struct {
	HardBlocks, SoftBlocks, Bytes     uint64
	HardEntries, SoftEntries, Entries uint64
	BlockTime, EntryTime              uint64
	Valid, _                          uint32
}

// quotaState begins as struct fs_quota_statv of linux/dqblk_xfs.h, and is larger.
type quotaState struct {
	Version int8
	_       uint8
	Flags   uint16
	_       [252]byte
}

// Enforced reports whether the file system of a folder has project quotas that are on, and this process may set them.
func Enforced(dir string) bool {
	f, err := open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.enforced()
}

// Set bounds what a folder holds, in bytes and in files and folders, where quotas are enforced: the folder becomes a project of its own. 0
// stands for no bound. A folder stays as it is when something is in it already, or when it belongs to the project of the folder above: an
// administrator's. Errors: the system's.
func Set(dir string, bytes, entries int64) error {
	f, err := open(dir)
	if err != nil || !f.enforced() {
		return closed(f, nil)
	}
	id, err := f.own()
	switch {
	case err != nil:
	case id == 0:
		err = f.begin(bytes, entries)
	default:
		err = f.limit(id, bytes, entries)
	}
	return closed(f, err)
}

// Clear ends what bounds a folder. It is for one that is about to be removed: the file system keeps the limits of a project without files.
func Clear(dir string) {
	f, err := open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	if !f.enforced() {
		return
	}
	if id, err := f.own(); err == nil && id != 0 {
		_ = f.limit(id, 0, 0)
	}
}

// Share puts an empty folder into the project of another one, or into none if that has none: no file system moves a file into a folder of
// another project. Errors: the system's.
func Share(to, from string) error {
	source, err := open(from)
	if err != nil || !source.enforced() {
		return closed(source, nil)
	}
	defer source.Close()
	target, err := open(to)
	if err != nil {
		return err
	}
	a, err := source.attributes()
	if err == nil {
		Clear(to)
		err = target.setProject(a.Project, a.Flags&inheritProject != 0)
	}
	return closed(target, err)
}

// Requests are the requests of ioctl by which the owner of a file takes it out of its project: filters of system calls refuse them.
func Requests() []uint32 { return []uint32{setAttributes, unix.FS_IOC_SETFLAGS} }

// folder is an open folder whose project may be set.
type folder struct {
	*os.File
	above string
}

var errNoProjects = errors.New("no project quotas")

// open opens a folder whose project may be set. It follows no link: that is the operator's, and so is the folder that it leads to.
func open(dir string) (*folder, error) {
	if os.Geteuid() != 0 {
		return nil, errNoProjects
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &folder{File: f, above: filepath.Dir(filepath.Clean(dir))}, nil
}

func closed(f *folder, err error) error {
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// enforced reports whether the file system enforces limits of projects, and this process may see those of others, for which it needs
// CAP_SYS_ADMIN, as for setting them: root in a container may have none. Errors are those of a file system without, or of a kernel before 5.14.
func (f *folder) enforced() bool {
	state := quotaState{Version: stateVersion}
	if f.quota(getQuotaState, 0, unsafe.Pointer(&state)) != nil || state.Flags&projectsHeld == 0 {
		return false
	}
	var q diskQuota
	err := f.quota(getQuota, 0, unsafe.Pointer(&q))
	return err == nil || errors.Is(err, unix.ENOENT)
}

// own is the id of the folder's own project; 0 when it has none.
func (f *folder) own() (uint32, error) {
	a, err := f.attributes()
	if err != nil || a.Project == 0 || a.Flags&inheritProject == 0 {
		return 0, err
	}
	if f.inherited(a.Project) {
		return 0, nil
	}
	return a.Project, nil
}

// inherited reports whether the folder has its project from the folder above. One that cannot be read counts as such.
func (f *folder) inherited(project uint32) bool {
	above, err := open(f.above)
	if err != nil {
		return true
	}
	defer above.Close()
	a, err := above.attributes()
	return err != nil || a.Project == project
}

// begin makes a folder a project with these limits, unless something is in it, or it is in a project already.
func (f *folder) begin(bytes, entries int64) error {
	a, err := f.attributes()
	if err != nil || a.Project != 0 {
		return err
	}
	if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
		return err
	}
	id, err := f.unusedID()
	if err == nil {
		err = f.limit(id, bytes, entries) // first: what is in a project is never without its limit
	}
	if err != nil {
		return err
	}
	if err = f.setProject(id, true); err != nil {
		return errors.Join(err, f.limit(id, 0, 0))
	}
	return nil
}

// unusedID is an id that no file and no limit has. That another worker draws the same one at the same time is as good as impossible.
func (f *folder) unusedID() (uint32, error) {
	for range projectIDTries {
		var b [4]byte
		_, _ = rand.Read(b[:]) // it never fails
		id := projectIDs | binary.NativeEndian.Uint32(b[:])%projectIDs
		var q diskQuota
		err := f.quota(getQuota, id, unsafe.Pointer(&q))
		if errors.Is(err, unix.ENOENT) || err == nil && q.Entries == 0 && q.HardBlocks == 0 && q.HardEntries == 0 {
			return id, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, errors.New("no unused id of a project was found")
}

// limit sets the limits of a project; 0 stands for none.
func (f *folder) limit(id uint32, bytes, entries int64) error {
	q := diskQuota{HardBlocks: uint64(min(bytes, math.MaxInt64-quotaBlock)+quotaBlock-1) / quotaBlock, HardEntries: uint64(entries), Valid: limitsGiven}
	return f.quota(setQuota, id, unsafe.Pointer(&q))
}

func (f *folder) attributes() (a attributes, err error) {
	err = f.ioctl(getAttributes, &a)
	return a, err
}

func (f *folder) setProject(id uint32, inherit bool) error {
	a, err := f.attributes()
	if err != nil {
		return err
	}
	a.Project, a.Flags = id, a.Flags&^inheritProject
	if inherit {
		a.Flags |= inheritProject
	}
	return f.ioctl(setAttributes, &a)
}

func (f *folder) ioctl(request uintptr, a *attributes) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a))); e != 0 {
		return os.NewSyscallError("ioctl", e)
	}
	return nil
}

func (f *folder) quota(command uintptr, id uint32, data unsafe.Pointer) error {
	if _, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command, uintptr(id), uintptr(data), 0, 0); e != 0 {
		return os.NewSyscallError("quotactl_fd", e)
	}
	return nil
}
