package packaging

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cleanRoot is a small Debian 12 with systemd's tools, rpm and Slurm, over which each test lays a view of its own.
type cleanRoot struct {
	t     *testing.T
	lower string
	dir   string
}

func newCleanRoot(t *testing.T, packages string) *cleanRoot {
	t.Helper()
	lower := strings.TrimSpace(output(t, "../tools/slurmroot/make-root", "clean"))
	r := &cleanRoot{t: t, lower: lower, dir: t.TempDir()}
	for _, sub := range []string{"upper/packages", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(r.dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A directory of t.TempDir() is closed to others; the root of a system is not.
	for _, open := range []string{"upper", "root"} {
		if err := os.Chmod(filepath.Join(r.dir, open), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	output(t, "cp", "-R", packages+"/.", filepath.Join(r.dir, "upper/packages"))
	return r
}

// try runs a shell command line as root inside. What it changes stays for the next one; what it mounts and starts does not.
func (r *cleanRoot) try(line string) (string, error) {
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--", "sh", "-euc", `
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
		mount -t proc proc "$2/root/proc"
		mount --rbind /dev "$2/root/dev"
		exec chroot "$2/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive sh -euc "$3"`,
		"sh", r.lower, r.dir, line)
	cmd.Stdin = nil
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (r *cleanRoot) run(line string) string {
	r.t.Helper()
	out, err := r.try(line)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// refused runs what has to fail, and to say why.
func (r *cleanRoot) refused(line, says string) {
	r.t.Helper()
	if out, err := r.try(line); err == nil || !strings.Contains(out, says) {
		r.t.Errorf("%s: %v, want it refused with %q\n%s", line, err, says, out)
	}
}

// paths is everything inside but the books of the packagers and what any installation of any package touches.
func (r *cleanRoot) paths() []string {
	r.t.Helper()
	return strings.Split(r.run(`find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /packages -o -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/rpm -o -path /root/.rpmdb -o -path /var/log -o -path /var/cache -o -path /run/lock -o -path /run/systemd \) -prune -o -printf '%p %m %u:%g\n' | sort`), "\n")
}

func (r *cleanRoot) nothingLeft(before []string) {
	r.t.Helper()
	had := map[string]bool{}
	for _, p := range before {
		had[p] = true
	}
	for _, p := range r.paths() {
		if !had[p] {
			r.t.Errorf("left behind, or changed: %s", p)
		}
		delete(had, p)
	}
	for p := range had {
		r.t.Errorf("taken away, or changed: %s", p)
	}
}

// installed asks for what an installation of either kind has to bring about.
func (r *cleanRoot) installed() {
	r.t.Helper()
	for line, want := range map[string]string{
		`stat -c '%a %U:%G' /var/lib/gresize /run/gresize /etc/gresize /etc/gresize/gresize.toml | tr '\n' ' '`: "750 slurm:slurm 755 slurm:slurm 755 root:root 644 root:root ",
		`gresized -check /etc/gresize/gresize.toml 2>/dev/null`:                                                 "/etc/gresize/gresize.toml: ok, mode shadow, 0 targets, hold 5m0s\n",
		`gresize gpu list | grep -c A100`:                                                                       "5\n",
		`find /etc/systemd/system -name 'gresize*'`:                                                             "",
		`systemd-analyze verify /usr/lib/systemd/system/gresized.service /usr/lib/systemd/system/gresize-launch.service 2>&1 | grep -i gresize || true`: "",
		`bash -c '. /usr/share/bash-completion/completions/gresize && complete -p gresize' | grep -c __start_gresize`:                                   "1\n",
		`for page in /usr/share/man/man*/gresize*; do man --warnings -l $page 2>&1 >/dev/null; done`:                                                    "",
		// A small installation has no /bin/kill, for one.
		`sed -n 's/^Exec[A-Za-z]*=\([^ ]*\).*/\1/p' /usr/lib/systemd/system/gresize*.service | while read -r program; do test -x "$program" || echo "$program"; done`: "",
		`man gresize.toml | grep -c 'policy.margin_percent'`: "1\n",
	} {
		if got := r.run(line); got != want {
			r.t.Errorf("%s\n got %q\nwant %q", line, got, want)
		}
	}
}

// nightly tells whether the tests that take minutes are wanted: `make nightly` sets it.
var nightly = os.Getenv("GRESIZE_NIGHTLY") == "1"

const (
	older = "1.0.0"
	newer = "1.1.0"
)

func twoVersions(t *testing.T) string {
	t.Helper()
	all := t.TempDir()
	for _, version := range []string{older, newer} {
		out := makePackages(t, "VERSION="+version, "DEB_COMPRESSION=none")
		output(t, "cp", "-R", out+"/.", all)
	}
	return all
}

// TestLifeInCleanRoots installs, upgrades, downgrades, removes and purges in a Debian 12, by dpkg and by rpm.
func TestLifeInCleanRoots(t *testing.T) {
	if !nightly {
		t.Skip("run by make nightly: over a minute: make nightly runs it")
	}
	packages := twoVersions(t)
	t.Run("deb", func(t *testing.T) { lifeOfDeb(t, packages) })
	t.Run("deb where Slurm is not", func(t *testing.T) { debMakesTheUser(t, packages) })
	t.Run("rpm", func(t *testing.T) { lifeOfRPM(t, packages) })
	t.Run("rpm on OpenHPC", func(t *testing.T) { lifeOnOpenHPC(t, packages) })
}

func lifeOfDeb(t *testing.T, packages string) {
	r := newCleanRoot(t, packages)
	before := r.paths()
	r.run("dpkg --install /packages/gresize_" + older + "-1_*.deb")
	r.installed()
	r.run("dpkg --install /packages/gresize-slurm-plugin-*_" + older + "-1_*.deb")
	plugin := strings.TrimSpace(r.run("dpkg --listfiles $(dpkg-query --show --showformat '${Package}\n' 'gresize-slurm-plugin-*') | grep job_submit_gresize.so"))
	r.run("test -e " + filepath.Dir(plugin) + "/job_submit_lua.so")
	if out := r.run("printf 'JobSubmitPlugins=gresize\n' >/tmp/slurm.conf; gresize slurm check --conf /tmp/slurm.conf " + plugin); !strings.Contains(out, "gresize") {
		t.Errorf("gresize slurm check: %s", out)
	}

	// What the administrator wrote survives an upgrade, also one that brings another example.
	r.run(`sed -i 's/^mode = "shadow"/mode = "off"/' /etc/gresize/gresize.toml && touch /var/lib/gresize/decisions.db`)
	r.run(`dpkg-deb --raw-extract /packages/gresize_` + newer + `-1_*.deb /tmp/new && echo '# another example' >>/tmp/new/etc/gresize/gresize.toml && dpkg-deb -Znone --build /tmp/new /tmp/new.deb`)
	r.run("dpkg --force-confold --install /tmp/new.deb")
	r.run(`grep -q '^mode = "off"' /etc/gresize/gresize.toml && ! grep -q 'another example' /etc/gresize/gresize.toml && test -e /var/lib/gresize/decisions.db`)
	r.refused("dpkg --install /packages/gresize_"+older+"-1_*.deb", "move the log away")
	if got := r.run("dpkg-query --show --showformat '${Version} ${db:Status-Status}' gresize"); got != newer+"-1 installed" {
		t.Errorf("after a downgrade that was refused: %s", got)
	}
	r.run("mv /var/lib/gresize/decisions.db /tmp/; dpkg --force-confold --install /packages/gresize_" + older + "-1_*.deb; mv /tmp/decisions.db /var/lib/gresize/")

	// Removed, the site's file and the log stay; purged, nothing does.
	r.run("dpkg --remove gresize $(dpkg-query --show --showformat '${Package} ' 'gresize-slurm-plugin-*')")
	r.run("! test -e /usr/bin/gresized && ! test -e " + plugin + " && ! test -e /run/gresize && test -e /var/lib/gresize/decisions.db && test -e /etc/gresize/gresize.toml")
	r.run("rm -rf /etc/gresize/gresize.toml.dpkg-*; dpkg --purge gresize $(dpkg-query --show --showformat '${Package} ' 'gresize-slurm-plugin-*')")
	r.nothingLeft(before)

	// A plugin for a Slurm that is not here.
	r.run(`dpkg-deb --raw-extract /packages/gresize-slurm-plugin-*_` + newer + `-1_*.deb /tmp/other && sed -i 's/>= [0-9.]*)/>= 99.11.1)/g' /tmp/other/DEBIAN/control && dpkg-deb -Znone --build /tmp/other /tmp/other.deb`)
	r.refused("dpkg --install /tmp/other.deb", "depends on slurmctld (>= 99.11.1)")
}

// debMakesTheUser installs on a machine on which nobody has made SlurmUser.
func debMakesTheUser(t *testing.T, packages string) {
	r := newCleanRoot(t, packages)
	r.run("dpkg --purge --force-depends slurmctld slurm-client >/dev/null 2>&1; userdel slurm; getent group slurm >/dev/null && groupdel slurm; ! getent passwd slurm")
	r.run("dpkg --install /packages/gresize_" + older + "-1_*.deb")
	r.installed()
	if got := r.run("id slurm"); got != "uid=64030(slurm) gid=64030(slurm) groups=64030(slurm)\n" {
		t.Errorf("the user that was made: %s", got)
	}
}

// standIn makes a package that provides what an RPM distribution brings: Debian's rpm knows nothing of what dpkg installed.
func standIn(t *testing.T, packages, slurmctld string) {
	t.Helper()
	requires := output(t, "dpkg-deb", "--field", one(t, packages, "gresize_"+older+"-1_*.deb"), "Depends")
	glibc := strings.TrimSuffix(strings.Fields(requires)[2], "),")
	config := filepath.Join(t.TempDir(), "site.yaml")
	text := fmt.Sprintf(`
name: site%[1]s
arch: amd64
version: 1.0.0
maintainer: test <test@example.org>
description: what an RPM distribution brings
provides:
  - systemd
  - libc.so.6(GLIBC_2.17)(64bit)
  - libc.so.6(GLIBC_%[2]s)(64bit)
  - slurm-slurmctld%[1]s = %[3]s
`, slurmctld, glibc, pluginRelease(t))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "go", "run", nfpm(t), "package", "--config", config, "--packager", "rpm", "--target", packages+"/")
}

// pluginRelease is the release of Slurm for which the packages have a plugin.
func pluginRelease(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(output(t, "make", "-s", "-C", "../slurm/plugin", "release"))
}

func lifeOfRPM(t *testing.T, packages string) {
	release := pluginRelease(t)
	standIn(t, packages, "")
	r := newCleanRoot(t, packages)
	r.refused("rpm --install /packages/gresize-"+older+"-1.el8.*.rpm", "libc.so.6")
	r.run("rpm --install /packages/site-[0-9]*.rpm")
	before := r.paths()
	r.run("rpm --install /packages/gresize-" + older + "-1.el8.*.rpm")
	r.installed()
	r.refused("rpm --install /packages/gresize-slurm-plugin-*-ohpc-"+older+"-1.el8.*.rpm", "slurm-slurmctld-ohpc")
	r.run("rpm --install /packages/gresize-slurm-plugin-" + release + "-" + older + "-1.el8.*.rpm && test -e /usr/lib64/slurm/job_submit_gresize.so")
	if got := strings.Fields(r.run("rpm --query --configfiles gresize")); !slices.Equal(got, []string{"/etc/gresize/gresize.toml"}) {
		t.Errorf("configuration files: %v", got)
	}
	r.run(`sed -i 's/^mode = "shadow"/mode = "off"/' /etc/gresize/gresize.toml && touch /var/lib/gresize/decisions.db`)
	// With the distribution: of one version, that of the newer distribution is the newer package.
	r.run("rpm --upgrade /packages/gresize-" + older + "-1.el9.*.rpm && rpm --upgrade /packages/gresize-" + newer + "-1.el9.*.rpm")
	r.run(`grep -q '^mode = "off"' /etc/gresize/gresize.toml && test -e /var/lib/gresize/decisions.db && test "$(rpm --query --queryformat '%{VERSION}' gresize)" = ` + newer)
	r.refused("rpm --upgrade /packages/gresize-"+older+"-1.el9.*.rpm", "newer")
	r.run("rpm --erase gresize $(rpm --query --all 'gresize-slurm-plugin-*')")
	r.run("! test -e /usr/bin/gresized && ! test -e /usr/lib64/slurm/job_submit_gresize.so && test -e /var/lib/gresize/decisions.db && test -e /etc/gresize/gresize.toml.rpmsave")
	// Folders that belong to other packages of an RPM distribution.
	r.run("rm -r /var/lib/gresize /etc/gresize; rmdir --ignore-fail-on-non-empty /usr/lib64/slurm /usr/share/fish/vendor_completions.d /usr/share/fish /usr/share/man/man[158]")
	r.nothingLeft(before)
}

// lifeOnOpenHPC is that of the plugin for OpenHPC's Slurm, whose packages have names of their own.
func lifeOnOpenHPC(t *testing.T, packages string) {
	release := pluginRelease(t)
	standIn(t, packages, "")
	standIn(t, packages, "-ohpc")
	r := newCleanRoot(t, packages)
	r.run("rpm --install /packages/site-ohpc-*.rpm")
	before := r.paths()
	const plugin = "/usr/lib64/slurm/job_submit_gresize.so"
	for _, dist := range []string{"el8", "el9"} {
		ours := func(version string) string {
			return "/packages/gresize-" + version + "-1." + dist + ".*.rpm /packages/gresize-slurm-plugin-" + release + "-ohpc-" + version + "-1." + dist + ".*.rpm"
		}
		r.refused("rpm --install /packages/gresize-slurm-plugin-"+release+"-"+older+"-1."+dist+".*.rpm", "slurm-slurmctld")
		r.run("rpm --install " + ours(older) + " && test -e " + plugin)
		r.installed()
		// The two plugins are one file: whoever moves from one Slurm to the other replaces it.
		r.refused("rpm --install /packages/site-[0-9]*.rpm /packages/gresize-slurm-plugin-"+release+"-"+older+"-1."+dist+".*.rpm", "conflicts with")
		r.run("rpm --upgrade " + ours(newer) + " && rpm --verify gresize gresize-slurm-plugin-" + release + "-ohpc && test -e " + plugin)
		r.run("rpm --erase gresize gresize-slurm-plugin-" + release + "-ohpc && ! test -e /usr/bin/gresized && ! test -e " + plugin + " && ! test -e /run/gresize")
		r.run("rm -rf /var/lib/gresize /etc/gresize; rmdir --ignore-fail-on-non-empty /usr/lib64/slurm /usr/share/fish/vendor_completions.d /usr/share/fish /usr/share/man/man[158]")
		r.nothingLeft(before)
	}
}

// knownToRPMLint are what rpmlint says of the packages, and why it stays.
var knownToRPMLint = map[string]string{
	"no-signature":                              "a site signs with a key of its own",
	"no-changelogname-tag":                      "CHANGELOG.md is in the package",
	"invalid-license":                           "the list that Debian's rpmlint comes with knows no SPDX names",
	"no-documentation":                          "the packager writes no kinds of files, by which rpmlint knows documentation",
	"not-listed-as-documentation":               "the same, of manual pages",
	"manpage-not-compressed":                    "plain pages are read everywhere",
	"bad-manual-page-folder":                    "gresize.toml.5 is in man5, as systemd.unit.5 is",
	"no-manual-page-for-binary":                 "the pages are there, uncompressed",
	"devel-file-in-non-devel-package":           "libcuda.so is loaded under that name",
	"dangerous-command-in-%pre":                 "the word rpm in a comment",
	"dangerous-command-in-%postun":              "the same, and rm of /run/gresize",
	"statically-linked-binary":                  "one build for every glibc",
	"position-independent-executable-suggested": "they are linked statically",
	"unstripped-binary-or-object":               "a stack of slurmctld, or of a user's program, names our functions",
	"library-not-linked-against-libc":           "it stands for a library of CUDA of which nothing but the name is asked",
}

// TestRPMLint: rpmlint has nothing to say of the packages that is not known.
func TestRPMLint(t *testing.T) {
	if !nightly {
		t.Skip("run by make nightly: packs for some seconds")
	}
	if _, err := exec.LookPath("rpmlint"); err != nil {
		t.Skip("rpmlint is not installed (Debian's package of that name)")
	}
	packages := makePackages(t, "KINDS=rpm", "VERSION="+older)
	found, err := filepath.Glob(filepath.Join(packages, "*.rpm"))
	if err != nil || len(found) != 6 {
		t.Fatalf("%v %q, want gresize and two plugins for two distributions", err, found)
	}
	// rpmlint unpacks with cpio, which takes the packager's absolute names as they are and would write over this machine's own files.
	real, err := exec.LookPath("cpio")
	if err != nil {
		t.Fatal(err)
	}
	seen, tools := map[string]bool{}, t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "cpio"), []byte("#!/bin/sh\nexec "+real+" --no-absolute-filenames \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, rpm := range found {
		cmd := exec.CommandContext(t.Context(), "rpmlint", rpm)
		cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput() // its exit status counts what is known, too
		if !strings.Contains(string(out), "1 packages and 0 specfiles checked") {
			t.Fatalf("%s", out)
		}
		for _, line := range strings.Split(string(out), "\n") {
			fields := strings.Fields(line)
			if len(fields) < 3 || fields[1] != "E:" && fields[1] != "W:" {
				continue
			}
			seen[fields[2]] = true
			if knownToRPMLint[fields[2]] == "" {
				t.Errorf("%s: %s", filepath.Base(rpm), line)
			}
		}
	}
	for code := range knownToRPMLint {
		if !seen[code] {
			t.Errorf("rpmlint does not say %s any more: take it out of the table", code)
		}
	}
}
