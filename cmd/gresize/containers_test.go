package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// enterHost makes a folder with a small Debian the root of a mount namespace, and an ordinary user of whoever runs there. Below /mnt lie this tree's build, an image, PyTorch and a home.
const enterHost = `
host=$1 build=$2 image=$3 torch=$4
mount --rbind "$host" "$host"
mount -t proc proc "$host/proc"
mount --rbind /dev "$host/dev"
mount --rbind /sys "$host/sys"
for at in mnt tmp var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$host/$at"; done
mkdir "$host/mnt/old" "$host/mnt/build" "$host/mnt/image" "$host/mnt/torch" "$host/mnt/home"
mount --bind "$build" "$host/mnt/build"
mount --bind "$image" "$host/mnt/image"
mount --bind "$torch" "$host/mnt/torch"
[ -e "$host/etc/hosts" ] || : >"$host/etc/hosts"
{ cat "$host/etc/passwd"; echo "jane:x:54377:54377::/mnt/home:/bin/sh"; } >"$host/mnt/passwd"
mount --bind "$host/mnt/passwd" "$host/etc/passwd"
chown 54377:54377 "$host/mnt/home"
cd "$host"
pivot_root . mnt/old
umount -l /mnt/old
cd /mnt/home
cat >train.py
[ "$5" = folder ] || apptainer build image.sif /mnt/image >build.log 2>&1 || { cat build.log; exit 1; }
exec setpriv --reuid=54377 --regid=54377 --clear-groups env -i HOME=/mnt/home USER=jane PATH=/usr/bin:/bin "$7" /mnt/build/bin/gresize estimate --budget 90s -- bash -c "$6"
`

// TestContainers: what Apptainer runs in a container is on the virtual GPU, however the container is started.
func TestContainers(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("a part of make nightly: GRESIZE_NIGHTLY is not set")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can mount the folder with Apptainer")
	}
	host, image := filepath.Join(torchtest.Cache(), "container-host"), filepath.Join(torchtest.Cache(), "container-image")
	for _, dir := range []string{host, image} {
		if _, err := os.Stat(dir); err != nil {
			t.Skipf("%v: tools/setup container-host container-image prepares it", err)
		}
	}
	build, err := filepath.Abs("../../build")
	if err != nil {
		t.Fatal(err)
	}
	const start, python = "apptainer exec --nv --bind /mnt/torch ", " /mnt/torch/bin/python train.py"
	for _, c := range []struct{ name, given, script, says string }{
		{"exec", "A=", start + "/mnt/image" + python, ""},
		{"an image file", "A=", start + "image.sif" + python, ""},
		{"folders that the script shows", "A=", "export SINGULARITY_BIND=/mnt/torch; apptainer exec --nv /mnt/image" + python, ""},
		{"folders that the site shows", "APPTAINER_BINDPATH=/mnt/torch", "apptainer exec /mnt/image" + python, ""},
		{"nothing of the job's environment", "A=", start + `--cleanenv --containall --bind "$PWD" --pwd "$PWD" /mnt/image sh -c 'nvidia-smi -L && exec` + python + "'", ""},
		{"under srun", "A=", "srun --ntasks=1 " + start + "/mnt/image" + python, ""},
		{"no PyTorch in it", "A=", start + "/mnt/image python3 -c pass", "no_torch"},
		{"no such image", "A=", start + "gone.sif" + python, "gone.sif"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := "folder"
			if strings.Contains(c.script, "image.sif") {
				kind = "file"
			}
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--", "bash", "-euc", enterHost, "bash",
				host, build, image, torchtest.Environment(t, "2.6.0"), kind, c.script, c.given)
			cmd.Stdin = strings.NewReader(train)
			out, err := cmd.CombinedOutput()
			if text := string(out); c.says == "" && (err != nil || !surely.MatchString(text)) || c.says != "" && (err == nil || !strings.Contains(text, c.says)) {
				t.Errorf("%v, want %q\n%s", err, c.says, text)
			}
		})
	}
}
