package plugintest

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/wire"
)

// What TestMain builds: the plugin and a stand-in for slurmctld, once as it is
// shipped and once with the sanitizers.
var (
	shipped   build
	sanitized build
)

type build struct{ plugin, driver string }

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gresize-plugin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if shipped, err = compile(filepath.Join(dir, "shipped"), "-O2 -g"); err == nil {
			const sanitizers = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
			sanitized, err = compile(filepath.Join(dir, "sanitized"), sanitizers, "HARDENING=")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func compile(dir, cflags string, makeArgs ...string) (build, error) {
	b := build{plugin: filepath.Join(dir, "job_submit_gresize.so"), driver: filepath.Join(dir, "driver")}
	args := append([]string{"-s", "-C", "..", "OUT=" + dir, "CFLAGS=" + cflags}, makeArgs...)
	if output, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		return b, fmt.Errorf("build the plugin: %w\n%s", err, output)
	}
	ccArgs := append(strings.Fields(cflags), "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
		"-rdynamic", "-o", b.driver, "../tests/driver.c", "-ldl", "-lpthread")
	if output, err := exec.Command("cc", ccArgs...).CombinedOutput(); err != nil {
		return b, fmt.Errorf("build the driver: %w\n%s", err, output)
	}
	return b, nil
}

// driver is a running stand-in for slurmctld.
type driver struct {
	t       *testing.T
	input   io.WriteCloser
	output  *bufio.Reader
	log     *bytes.Buffer
	process *exec.Cmd
}

// start runs a driver whose plugin.conf has these lines.
func start(t *testing.T, b build, conf string) *driver {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return startWith(t, b, path)
}

func startWith(t *testing.T, b build, confPath string) *driver {
	t.Helper()
	d := &driver{t: t, log: &bytes.Buffer{}, process: exec.Command(b.driver, b.plugin)}
	d.process.Env = append(os.Environ(), "GRESIZE_PLUGIN_CONF="+confPath)
	d.process.Stderr = d.log
	var err error
	if d.input, err = d.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := d.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.output = bufio.NewReaderSize(stdout, 64<<10)
	if err := d.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stop() })
	return d
}

// stop ends the driver and returns its log. A sanitizer's complaint fails the test.
func (d *driver) stop() string {
	if d.process.ProcessState != nil {
		return d.log.String()
	}
	d.input.Close()
	if err := d.process.Wait(); err != nil {
		d.t.Errorf("driver: %v\n%s", err, d.log)
	}
	return d.log.String()
}

func (d *driver) tell(commands ...string) {
	d.t.Helper()
	for _, command := range commands {
		if _, err := io.WriteString(d.input, command+"\n"); err != nil {
			d.t.Fatalf("driver is gone: %v\n%s", err, d.stop())
		}
	}
}

func (d *driver) line() string {
	d.t.Helper()
	line, err := d.output.ReadString('\n')
	if err != nil {
		d.t.Fatalf("driver is gone: %v\n%s", err, d.stop())
	}
	return strings.TrimSuffix(line, "\n")
}

// submit calls job_submit, insists on success without a message, and returns
// the time that it took.
func (d *driver) submit() time.Duration {
	d.t.Helper()
	d.tell("submit 1000")
	answer := d.line()
	words := strings.SplitN(answer, " ", 4)
	if len(words) != 4 || words[0] != "submit" || words[1] != "0" || words[3] != "" {
		d.t.Fatalf("job_submit must succeed in silence, got %q", answer)
	}
	nanoseconds, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return time.Duration(nanoseconds)
}

// dump returns the whole job as one line.
func (d *driver) dump() string {
	d.t.Helper()
	d.tell("dump")
	return d.line()
}

// job returns the job's fields, texts decoded.
func (d *driver) job() map[string]string {
	d.t.Helper()
	fields := map[string]string{}
	for _, word := range strings.Fields(d.dump())[1:] {
		name, value, _ := strings.Cut(word, "=")
		if name == "environment" || name == "argv" {
			_, list, _ := strings.Cut(value, ":")
			var entries []string
			for _, entry := range strings.Split(strings.TrimSuffix(list, ","), ",") {
				entries = append(entries, unhex(d.t, entry))
			}
			fields[name] = strings.Join(entries, "\n")
		} else if _, err := strconv.ParseUint(value, 10, 64); err == nil && !textFields[name] {
			fields[name] = value
		} else {
			fields[name] = unhex(d.t, value)
		}
	}
	return fields
}

var textFields = map[string]bool{
	"account": true, "admin_comment": true, "array_inx": true, "burst_buffer": true, "clusters": true, "comment": true,
	"cpus_per_tres": true, "dependency": true, "exc_nodes": true, "features": true, "licenses": true, "mem_per_tres": true,
	"name": true, "partition": true, "prefer": true, "qos": true, "req_nodes": true, "reservation": true, "script": true,
	"tres_per_job": true, "tres_per_node": true, "tres_per_socket": true, "tres_per_task": true, "work_dir": true,
}

func unhex(t *testing.T, text string) string {
	t.Helper()
	decoded, err := hex.DecodeString(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return string(decoded)
}

func text(field, value string) string { return fmt.Sprintf("text %s %x", field, value) }

func environment(variables ...string) string {
	command := "env"
	for _, variable := range variables {
		command += fmt.Sprintf(" %x", variable)
	}
	return command
}

const script = "#!/bin/sh\n#SBATCH --gres=gpu:1\npython train.py\n"

// gpuJob is what sbatch --gres=gpu:1 train.sh 3 submits, the fields that matter.
func gpuJob() []string {
	return []string{
		"job",
		text("name", "train.sh"), text("partition", "gpu"), text("work_dir", "/home/ada"),
		text("tres_per_node", "gres:gpu:1"), text("script", script),
		"number min_cpus 4", "number min_nodes 1", "number requeue 1",
		fmt.Sprintf("argv %x %x", "/home/ada/train.sh", "3"),
		environment("HOME=/home/ada", "SLURM_GPUS=1", "SLURM_GPUS_PER_NODE=1", "A=b=c", "SLURM_MEM_PER_GPU=8192"),
	}
}

// serve listens on a socket and gives each connection to handle, one at a time.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			handle(connection)
			connection.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return path
}

// shortDir is a folder with a path that fits a socket's 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// daemon answers every request with the reply and hands the requests out.
func daemon(t *testing.T, reply *wire.Reply) (path string, requests chan *wire.Request) {
	t.Helper()
	requests = make(chan *wire.Request, 16)
	path = serve(t, func(connection net.Conn) {
		request, err := wire.ReadRequest(connection)
		if err != nil {
			t.Errorf("the plugin's request: %v", err)
			return
		}
		requests <- request // before the reply: whoever waits for the plugin looks here next
		if err := wire.WriteReply(connection, reply); err != nil {
			t.Errorf("reply: %v", err)
		}
	})
	return path, requests
}

// received returns the one request that has come, or nil.
func received(requests chan *wire.Request) *wire.Request {
	select {
	case request := <-requests:
		return request
	default:
		return nil
	}
}
