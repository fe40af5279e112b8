package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recipeTools is the folder with the linters of the recipes that tools/setup recipes makes, for any user: EasyBuild does not run as root.
func recipeTools(t *testing.T, tool string) string {
	t.Helper()
	if !nightly {
		t.Skip("a part of make nightly: GRESIZE_NIGHTLY is not set")
	}
	cache := os.Getenv("GRESIZE_CACHE")
	if cache == "" {
		cache = "/var/cache/gresize"
	}
	dir := filepath.Join(cache, "recipes", "bin")
	if _, err := os.Stat(filepath.Join(dir, tool)); err != nil {
		t.Skipf("%v: tools/setup recipes installs it", err)
	}
	return dir
}

// lint runs a command line in a shell that has the linters.
func lint(t *testing.T, tools, line string) string {
	t.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", line)
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// TestSpackRecipe holds it to the style that Spack's own check has: black and flake8 with lines of 99. Spack itself is in no package archive.
func TestSpackRecipe(t *testing.T) {
	tools := recipeTools(t, "black")
	lint(t, tools, "black --check --line-length 99 ../contrib/spack && flake8 --max-line-length 99 --extend-ignore F403,F405 ../contrib/spack")
}

// TestEasyBuildRecipe asks EasyBuild for its own checks of what is contributed, and for a dry run, which reads all of it.
func TestEasyBuildRecipe(t *testing.T) {
	tools := recipeTools(t, "eb")
	const lmod = "/usr/share/lmod/lmod/libexec/lmod"
	if _, err := os.Stat(lmod); err != nil {
		t.Skipf("%v: Lmod is not installed, which EasyBuild wants", err)
	}
	out := lint(t, tools, `dir=$(mktemp -d /var/tmp/gresize-eb.XXXXXX); trap 'rm -rf "$dir"' EXIT
cp ../contrib/easybuild/*.eb "$dir"; chown -R 54377:54377 "$dir"; chmod 755 "$dir"; cd "$dir"
for check in --check-contrib --dry-run; do setpriv --reuid=54377 --regid=54377 --clear-groups env HOME="$dir" TMPDIR="$dir" LMOD_CMD=`+lmod+` eb "$check" ./*.eb; done`)
	if !strings.Contains(out, "contribution checks PASSed") && !strings.Contains(out, "[PASS]") || !strings.Contains(out, "module: gresize/main") {
		t.Error(out)
	}
}

// TestAnsibleRole has nothing to say in the strictest profile of ansible-lint, and the role names what it sets as the manual does.
func TestAnsibleRole(t *testing.T) {
	tools := recipeTools(t, "ansible-lint")
	if out := lint(t, tools, "cd ../contrib/ansible && ansible-lint --offline --profile production && ansible-playbook --syntax-check -i localhost, site.yml"); !strings.Contains(out, "Passed") {
		t.Error(out)
	}
}

// TestRightsOfTheRole: the role gives gresize-sandbox what the manual gives it.
func TestRightsOfTheRole(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(page), "\nsetcap ")
	rights, _, _ := strings.Cut(after, " ")
	role, err := os.ReadFile("../contrib/ansible/roles/gresize/tasks/namespaces.yml")
	if err != nil || !found || !strings.Contains(string(role), "- "+rights+"\n") {
		t.Errorf("%v: the role has not %q", err, rights)
	}
}
