package sandbox

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits on the work of building the view; a machine with more mounts gets the rest read-only.
const (
	maxOverlays     = 512
	maxCommon       = 128
	maxDepth        = 16
	maxCopyBytes    = 1 << 20
	maxNotes        = 40
	maxMountinfoLen = 4 << 20
)

// A file system in memory has room for so many names.
const (
	bytesPerName = 4096
	leastNames   = 4096
)

// pseudoFileSystems hold no files of anyone; they are shown read-only as they are.
var pseudoFileSystems = []string{
	"proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "mqueue", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "pstore",
	"hugetlbfs", "fusectl", "binfmt_misc", "efivarfs", "nsfs", "rpc_pipefs", "selinuxfs",
}

// The private directory, relative to which the builder works.
const (
	viewDir   = "view"     // below it; a tmpfs, and the working directory of the builder
	rootDir   = "root"     // the new root
	memoryDir = "upper"    // what overlays change, in memory
	diskName  = "upper"    // the same on the file system of the private directory
	diskDir   = "../upper" // seen from the view
)

// builder puts the new view together under base, a private directory.
type builder struct {
	base     string
	policy   Policy
	mounts   map[string]string // mount point → file system type
	points   []string          // mount points, sorted
	needed   []string          // the working directory, the home and the folder for temporary files
	named    []string          // paths that the command and its environment name
	ways     []string          // directories that are made among the changes beforehand, see ways.go
	overlays int
	copied   int64
	disk     bool // overlays keep their changes in diskDir
	// memoryKeeps says that memory keeps user attributes; toldOfDisk that there is a note of changes that are kept in memory although they should not be.
	memoryKeeps, toldOfDisk bool
	notes                   []string
	// uncovered counts the places for which there was no overlay left.
	uncovered int
	// endpoints counts the sockets and pipes that were covered, see endpoints.go.
	endpoints int
	// skeletons counts the directories that were made anew beside the view, see placeOver.
	skeletons int
	// overlayOptions are those of every overlay; copies says that none can be made, see copies.go, and what follows counts the copies.
	overlayOptions                            string
	copies                                    bool
	copiedEntries, copiedBinds, copiesMissing int
	copyUntil, endpointsUntil                 time.Time
	uncoveredCopies                           [][2]string
}

// errOverlays: each mount point beside a directory makes an overlay of the directory's neighbours necessary, and their number is bounded.
var errOverlays = fmt.Errorf("more than %d overlays", maxOverlays)

func (b *builder) note(format string, args ...any) {
	if len(b.notes) < maxNotes {
		b.notes = append(b.notes, fmt.Sprintf(format, args...))
	}
}

// build makes the view and enters it. It returns the open report directory.
func (b *builder) build(cfg *config) (*os.File, error) {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, step(opPrivate, err)
	}
	if err := using(forNetwork, cfg.Network.raise); err != nil {
		return nil, step("raise the loopback interface", err)
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, step("read mountinfo", err)
	}
	b.mounts, err = parseMountinfo(io.LimitReader(f, maxMountinfoLen))
	f.Close()
	if err != nil {
		return nil, step("read mountinfo", err)
	}
	for point := range b.mounts {
		b.points = append(b.points, point)
	}
	slices.Sort(b.points)
	for _, dir := range append([]string{cfg.Dir}, cfg.Writable...) {
		b.needed = append(b.needed, dir)
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
			b.needed = append(b.needed, real)
		}
	}
	b.named = namedPaths(cfg)
	b.ways = b.findWays()
	check := slices.DeleteFunc(slices.Clone(b.needed), func(dir string) bool { return !writable(dir) })

	// Paths relative to base keep odd characters of its name out of mount options.
	if err := os.Chdir(b.base); err != nil {
		return nil, step("enter the private directory", err)
	}
	if err := os.Mkdir(viewDir, 0o755); err != nil {
		return nil, step("fill the private directory", err)
	}
	if err := tmpfs(viewDir, b.policy.ScratchBytes, "0755"); err != nil {
		return nil, step("mount the private file system", err)
	}
	if err := enterView(); err != nil {
		return nil, step("enter the private file system", err)
	}
	for _, d := range []string{rootDir, memoryDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, step("fill the private file system", err)
		}
	}
	if b.chooseOverlays(); !b.copies {
		b.chooseScratch()
	}
	if err := b.buildRoot(cfg); err != nil {
		return nil, err
	}
	reports, err := os.Open(rootDir + ReportDir)
	if err != nil {
		return nil, step("open the report directory", err)
	}
	if err := b.enter(cfg); err != nil {
		return nil, errors.Join(err, reports.Close())
	}
	b.checkWays(check)
	return reports, nil
}

func (b *builder) buildRoot(cfg *config) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return step("read /", err)
	}
	special := []string{"proc", "sys", "dev", strings.TrimPrefix(InsideDir, "/")}
	slices.SortStableFunc(entries, func(x, y os.DirEntry) int {
		return cmp.Compare(b.distance("/"+x.Name()), b.distance("/"+y.Name()))
	})
	for _, e := range entries {
		if !slices.Contains(special, e.Name()) {
			b.place("/"+e.Name(), rootDir+"/"+e.Name(), 0)
		}
	}
	b.coverCopies()
	for _, d := range []string{rootDir + "/proc", rootDir + "/sys", rootDir + "/dev", rootDir + "/tmp", rootDir + InsideDir, rootDir + FilesDir, rootDir + ReportDir, rootDir + ShimDir, rootDir + "/.old"} {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return step("make "+strings.TrimPrefix(d, rootDir), err)
		}
	}
	if err := bindReadOnly("/sys", rootDir+"/sys"); err != nil {
		return step("bind /sys", err)
	}
	if err := b.buildDev(rootDir + "/dev"); err != nil {
		return err
	}
	if err := mount("proc", rootDir+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return step("mount /proc", err)
	}
	// With lent rights there is no user namespace, neither for these settings nor for the command, see seccomp.go.
	if !lent {
		if err := boundNamespace(rootDir + "/proc/sys/user"); err != nil {
			return step("forbid namespaces of cgroups", err)
		}
	}
	if os.Geteuid() == 0 {
		closeProc(rootDir + "/proc")
	}
	if err := tmpfs(rootDir+ReportDir, b.policy.ReportBytes, "0700"); err != nil {
		return step("mount the report directory", err)
	}
	if err := provide(rootDir, "etc/passwd", func(text []byte) []byte { return withPasswd(text, cfg.Passwd) }); err != nil {
		b.note("the user's own name is missing in /etc/passwd: %v", err)
	}
	if err := provide(rootDir, "etc/hosts", cfg.Network.hostsFile); err != nil {
		b.note("the host's own name may lead nowhere: /etc/hosts: %v", err)
	}
	return b.fillInside(cfg)
}

// fillInside puts the files, the executable and the shims in place.
func (b *builder) fillInside(cfg *config) error {
	for _, f := range cfg.Files {
		if f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." {
			return step("write a file", fmt.Errorf("%q is no file name", f.Name))
		}
		path := rootDir + FilesDir + "/" + f.Name
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			return step("write "+f.Name, err)
		}
		if err := os.Chmod(path, os.FileMode(f.Mode)&0o777); err != nil {
			return step("write "+f.Name, err)
		}
	}
	if err := placeExecutable(rootDir + exePath); err != nil {
		return step("place the executable", err)
	}
	if b.policy.WithoutShims {
		return nil
	}
	for _, name := range shimNames() {
		if err := os.Symlink(exePath, rootDir+ShimDir+"/"+name); err != nil {
			return step("place the shims", err)
		}
		for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/slurm/bin"} {
			target := rootDir + dir + "/" + name
			if fi, err := os.Stat(target); err == nil && fi.Mode().IsRegular() && !runsReal(name) {
				if err := bindReadOnly(rootDir+exePath, target); err != nil {
					b.note("%s/%s is not covered by a shim: %v", dir, name, err)
				}
			}
		}
	}
	return nil
}

// placeExecutable shows this program at target. It was opened in another mount
// namespace, so it is bound by its name; where the name is gone, it is copied.
func placeExecutable(target string) error {
	if err := os.WriteFile(target, nil, 0o755); err != nil {
		return err
	}
	opened, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer opened.Close()
	if name, err := os.Readlink("/proc/self/exe"); err == nil && sameFile(opened, name) && bindReadOnly(name, target) == nil {
		return nil
	}
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, opened); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func sameFile(opened *os.File, name string) bool {
	a, err := opened.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(name)
	return err == nil && os.SameFile(a, b)
}

func (b *builder) enter(cfg *config) error {
	if err := os.Chdir(rootDir); err != nil {
		return step("enter the new root", err)
	}
	// pivot_root wants a mount point; the view itself stays writable for new names in /.
	if err := mount(".", ".", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return step("bind the new root", err)
	}
	if err := os.Chdir("../" + rootDir); err != nil { // what was bound over it
		return step("enter the new root", err)
	}
	if err := using(forMounts, func() error { return unix.PivotRoot(".", ".old") }); err != nil {
		return step("pivot_root", err)
	}
	if err := os.Chdir("/"); err != nil {
		return step("enter /", err)
	}
	if err := unmount("/.old"); err != nil {
		return step("leave the old root", err)
	}
	if err := os.Remove("/.old"); err != nil {
		return step("leave the old root", err)
	}
	if fi, err := os.Stat(cfg.Dir); err != nil || !fi.IsDir() {
		return step("find the working directory "+cfg.Dir, errors.Join(err, unix.ENOENT))
	}
	return nil
}

// place shows what is at src under dst: directories as overlays, where the
// kernel can make one; it cannot over a directory that holds other mounts, so
// such a directory is made anew and its entries are placed one by one.
func (b *builder) place(src, dst string, depth int) {
	fi, err := os.Lstat(src)
	if err != nil {
		return
	}
	switch {
	case fi.Mode()&os.ModeSymlink != 0:
		if target, err := os.Readlink(src); err == nil {
			_ = os.Symlink(target, dst)
		}
	case fi.IsDir():
		if err := os.Mkdir(dst, fi.Mode().Perm()|0o700); err != nil {
			b.note("%s is missing: %v", src, err)
			return
		}
		b.placeDir(src, dst, fi, depth)
	case fi.Mode().IsRegular():
		b.placeFile(src, dst, fi)
	}
}

func (b *builder) placeDir(src, dst string, fi os.FileInfo, depth int) {
	kind, mounted := b.mounts[src]
	if mounted && slices.Contains(pseudoFileSystems, kind) {
		b.readOnly(src, dst, nil)
		return
	}
	if !b.holdsMounts(src) {
		if b.copies {
			b.copyPlace(src, dst)
			return
		}
		switch err := b.overlay(src, dst, fi); {
		case errors.Is(err, errOverlays):
			// Shown as it is, its pipes and sockets could be used; it is left empty.
			if b.uncovered++; b.uncovered == 1 {
				b.note("%s is empty: %v", src, err)
			}
		case err != nil:
			b.readOnly(src, dst, err)
		}
		return
	}
	if depth >= maxDepth {
		b.readOnly(src, dst, errors.New("mounts are nested too deeply"))
		return
	}
	names := b.mountNames(src)
	if kind != "autofs" { // reading an automounter's directory would mount all of it
		entries, err := os.ReadDir(src)
		if errors.Is(err, os.ErrPermission) {
			b.placeOver(src, dst, append(names, b.namesOnTheWay(src)...), depth)
			return
		}
		if err != nil {
			b.readOnly(src, dst, err)
			return
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	// What the command needs comes first, while there are overlays left.
	slices.SortStableFunc(names, func(x, y string) int {
		return cmp.Compare(b.distance(filepath.Join(src, x)), b.distance(filepath.Join(src, y)))
	})
	if fi.Mode()&os.ModeSticky != 0 { // in a common /tmp may lie any number of things that are not this job's
		names = b.withoutCommon(src, names)
	}
	for _, name := range names {
		b.place(filepath.Join(src, name), filepath.Join(dst, name), depth+1)
	}
}

// placeOver shows a directory that can be entered and not listed, as homes often lie in, and holds mounts: as it is, with what is known to lie in it on top.
func (b *builder) placeOver(src, dst string, names []string, depth int) {
	if err := bindReadOnly(src, dst); err != nil {
		b.note("%s is empty: %v", src, err)
		return
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		from, to := filepath.Join(src, name), filepath.Join(dst, name)
		fi, err := os.Lstat(from)
		if err != nil || !fi.IsDir() {
			continue
		}
		if b.holdsMounts(from) { // it is made anew, for which there is no room in a place that is read-only
			b.skeletons++
			anew := memoryDir + "/skeleton" + strconv.Itoa(b.skeletons)
			if err := errors.Join(os.Mkdir(anew, fi.Mode().Perm()|0o700), mount(anew, to, "", unix.MS_BIND, "")); err != nil {
				b.note("%s is read-only: %v", from, err)
				continue
			}
		}
		b.placeDir(from, to, fi, depth+1)
	}
}

// withoutCommon keeps of a common directory's entries what the command needs or names and a bounded number of others.
func (b *builder) withoutCommon(dir string, names []string) []string {
	kept := slices.IndexFunc(names, func(name string) bool { return b.distance(filepath.Join(dir, name)) > 1 })
	if most := kept + maxCommon; kept >= 0 && len(names) > most {
		b.note("%d entries of %s are left out, since something is mounted below it: at most %d are shown", len(names)-most, dir, maxCommon)
		names = names[:most]
	}
	return names
}

// distance is 0 for what is on the way to what the command needs, 1 on the way to what it names, and 2 for all else.
func (b *builder) distance(dir string) int {
	holds := func(path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	switch {
	case slices.ContainsFunc(b.needed, holds):
		return 0
	case slices.ContainsFunc(b.named, holds):
		return 1
	}
	return 2
}

func (b *builder) placeFile(src, dst string, fi os.FileInfo) {
	if fi.Size() <= maxCopyBytes {
		if data, err := os.ReadFile(src); err == nil && os.WriteFile(dst, data, 0o600) == nil {
			_ = os.Chmod(dst, fi.Mode().Perm())
			return
		}
	}
	if err := os.WriteFile(dst, nil, 0o600); err != nil {
		b.note("%s is missing: %v", src, err)
		return
	}
	if err := bindReadOnly(src, dst); err != nil {
		b.note("%s is empty: %v", src, err)
	}
}

// inMemory says what changes that are kept in memory mean for a script.
func (b *builder) inMemory() string {
	if b.memoryKeeps {
		return "changes are kept in memory"
	}
	return "changes are kept in memory, where a directory that had files cannot be removed (EIO)"
}

// chooseScratch says where overlays keep what is changed. A tmpfs is best: it has
// a limit, and is gone by itself. Before Linux 6.6 it keeps no user attributes,
// though, and then a directory that had files cannot be removed; so there
// the changes go to the disk, where the starting process watches their size.
func (b *builder) chooseScratch() {
	if lent { // attributes that are kept everywhere are root's
		b.memoryKeeps = true
		return
	}
	const attribute = "user.gresize"
	b.memoryKeeps = unix.Setxattr(memoryDir, attribute, []byte("y"), 0) == nil
	if b.memoryKeeps && !b.policy.DiskScratch {
		return
	}
	if err := os.Mkdir(diskDir, 0o700); err != nil {
		b.note("%s: %v", b.inMemory(), err)
		return
	}
	if err := unix.Setxattr(diskDir, attribute, []byte("y"), 0); err != nil {
		b.note("neither memory nor %s keeps user attributes: %s", filepath.Dir(b.base), b.inMemory())
		return
	}
	b.disk = true
}

func (b *builder) overlay(src, dst string, fi os.FileInfo) error {
	if b.overlays >= maxOverlays {
		return errOverlays
	}
	b.overlays++
	// An overlay cannot keep its changes in a place that it covers.
	var refused error
	if b.disk && !strings.HasPrefix(b.base, src+"/") {
		if refused = b.overlayIn(diskDir, src, dst, fi); refused == nil {
			return nil
		}
	}
	err := b.overlayIn(memoryDir, src, dst, fi)
	// What is covered can be: so it is the place for changes that cannot, as a network file system.
	if err == nil && refused != nil && !b.toldOfDisk {
		b.toldOfDisk = true
		b.note("no overlay keeps its changes in %s (%v): %s", filepath.Dir(b.base), refused, b.inMemory())
	}
	return err
}

func (b *builder) overlayIn(scratch, src, dst string, fi os.FileInfo) error {
	dir := scratch + "/" + strconv.Itoa(b.overlays)
	for _, d := range []string{dir, dir + "/u", dir + "/w"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	mode := fi.Mode().Perm() | 0o700
	if fi.Mode()&os.ModeSticky != 0 {
		mode |= os.ModeSticky
	}
	if err := os.Chmod(dir+"/u", mode); err != nil {
		return err
	}
	b.makeWays(src, dir+"/u")
	if lent {
		if err := likeBelow(src, dir+"/u"); err != nil {
			return err
		}
	}
	return mountOverlay(src, dst, ",upperdir="+dir+"/u,workdir="+dir+"/w"+b.overlayOptions)
}

// escapeOption keeps the characters that overlayfs gives a meaning to.
func escapeOption(path string) string {
	return strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`).Replace(path)
}

// readOnly is the second best for a place that no overlay can cover.
func (b *builder) readOnly(src, dst string, cause error) {
	if err := bindReadOnly(src, dst); err != nil {
		b.note("%s is empty: %v", src, err)
		return
	}
	if cause != nil {
		b.note("%s is read-only: %v", src, cause)
		b.coverEndpoints(src, dst)
	}
}

func (b *builder) holdsMounts(dir string) bool {
	return len(b.mountNames(dir)) > 0
}

// namesOnTheWay lists the entries of dir that lead to what the command needs, or to where it may write.
func (b *builder) namesOnTheWay(dir string) []string {
	var names []string
	for _, path := range slices.Concat(b.needed, b.ways) {
		if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	return names
}

// mountNames lists the entries of dir under which something is mounted.
func (b *builder) mountNames(dir string) []string {
	var names []string
	for _, point := range b.points {
		if rest, ok := strings.CutPrefix(point, dir+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func tmpfs(target string, bytes int64, mode string) error {
	// Names of files and their attributes take memory, too, which is not in the size.
	names := max(bytes/bytesPerName, leastNames)
	return mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,nr_inodes=%d,mode=%s", bytes, names, mode))
}

// parseMountinfo maps each mount point to its file system type; of several
// mounts on one point the last, which hides the others, counts.
func parseMountinfo(r io.Reader) (map[string]string, error) {
	mounts := map[string]string{}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 64<<10)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		dash := slices.Index(fields, "-")
		if dash < 6 || dash+1 >= len(fields) {
			return nil, fmt.Errorf("line %q is not of the known form", scanner.Text())
		}
		mounts[unescapeMountinfo(fields[4])] = fields[dash+1]
	}
	return mounts, scanner.Err()
}

// unescapeMountinfo turns \040 and its like into the characters they stand for.
func unescapeMountinfo(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
