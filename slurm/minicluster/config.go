package minicluster

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gresize/gresize/slurm/release"
)

// The partitions of every cluster that has nodes for them.
const (
	// GPUPartition holds the nodes with a GPU.
	GPUPartition = "gpu"
	// ProbePartition holds the nodes without one. The default is GPUPartition when it exists.
	ProbePartition = "probe"
)

// clusterName is what the cluster calls itself.
const clusterName = "gresize"

var (
	plainName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,40}$`)
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	countedGres = regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}:[1-9][0-9]{0,12}$`)
	safeInPath  = regexp.MustCompile(`^/[A-Za-z0-9_./+-]*$`)
)

// checkNodes refuses what Slurm's configuration could not say, before a daemon dies of it.
func checkNodes(nodes []Node) error {
	if len(nodes) == 0 {
		return fmt.Errorf("minicluster: no nodes")
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		if !plainName.MatchString(n.Name) || seen[n.Name] {
			return fmt.Errorf("minicluster: node name %q is not a plain name or is there twice", n.Name)
		}
		seen[n.Name] = true
		if n.CPUs < 1 || n.RealMemoryMiB < 1 || n.GPUs < 0 || n.Shards < 0 || n.MPS < 0 {
			return fmt.Errorf("minicluster: node %s: CPUs and RealMemoryMiB must be positive, GPUs, Shards and MPS not negative", n.Name)
		}
		if n.GPUs == 0 && (n.Shards > 0 || n.MPS > 0 || n.GPUType != "" || len(n.GPUEnv) > 0) {
			return fmt.Errorf("minicluster: node %s has no GPU but a GPU's type, shards or environment", n.Name)
		}
		if n.GPUs > 0 && (n.Shards%n.GPUs != 0 || n.MPS%n.GPUs != 0) {
			return fmt.Errorf("minicluster: node %s: %d shards and %d of MPS cannot be split evenly over %d GPUs", n.Name, n.Shards, n.MPS, n.GPUs)
		}
		for _, word := range append([]string{n.GPUType}, n.Features...) {
			if word != "" && !plainName.MatchString(word) {
				return fmt.Errorf("minicluster: node %s: %q cannot be a GPU type or a feature", n.Name, word)
			}
		}
		for _, counted := range n.Counted {
			if !countedGres.MatchString(counted) {
				return fmt.Errorf("minicluster: node %s: %q is not NAME:COUNT", n.Name, counted)
			}
		}
		for _, line := range n.GPUEnv {
			name, value, ok := strings.Cut(line, "=")
			if !ok || !envName.MatchString(name) || strings.ContainsAny(value, "\n\r\x00") {
				return fmt.Errorf("minicluster: node %s: %q is not NAME=value on one line", n.Name, line)
			}
		}
	}
	return nil
}

// slurmConf is the text of slurm.conf. Nothing in it needs systemd, cgroups or an address beside loopback.
func (c *Cluster) slurmConf() string {
	var b strings.Builder
	set := func(key, value string) {
		if _, other := c.opts.Settings[key]; !other {
			fmt.Fprintf(&b, "%s=%s\n", key, value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.opts.Settings)) {
		fmt.Fprintf(&b, "%s=%s\n", key, c.opts.Settings[key])
	}
	set("ClusterName", clusterName)
	b.WriteString(c.controllerLines())
	set("SlurmctldPort", strconv.Itoa(c.controllerPort))
	set("SlurmUser", c.opts.SlurmUser)
	set("SlurmdUser", "root")
	if c.opts.SlurmAuth {
		set("AuthType", "auth/slurm")
		set("CredType", "cred/slurm")
	} else {
		set("AuthType", "auth/munge")
		set("AuthInfo", "socket="+c.path("run/munge/socket"))
		set("CredType", "cred/munge")
	}
	if c.opts.Configless {
		set("SlurmctldParameters", "enable_configless")
	}
	set("CommunicationParameters", "NoCtldInAddrAny,NoInAddrAny")
	if c.opts.Cgroup2 {
		set("ProctrackType", "proctrack/cgroup")
		set("TaskPlugin", "task/cgroup")
	} else {
		set("ProctrackType", "proctrack/linuxproc")
		set("TaskPlugin", "task/none")
	}
	if c.opts.Accounting {
		set("JobAcctGatherType", "jobacct_gather/linux")
		set("JobAcctGatherFrequency", "task=1")
		set("AccountingStorageType", "accounting_storage/slurmdbd")
		set("AccountingStorageHost", "127.0.0.1")
		set("AccountingStoragePort", strconv.Itoa(c.databasePort))
		// With munge, the password of slurmdbd is where munged listens.
		set("AccountingStoragePass", c.path("run/munge/socket"))
		set("AccountingStorageTRES", c.accountedResources())
		set("AccountingStorageEnforce", "associations,limits,qos")
	} else {
		set("JobAcctGatherType", "jobacct_gather/none")
	}
	set("MpiDefault", "none")
	set("SwitchType", "switch/none")
	set("SelectType", "select/cons_tres")
	set("SelectTypeParameters", "CR_Core_Memory")
	set("SchedulerType", "sched/backfill")
	set("SchedulerParameters", "sched_interval=1,bf_interval=1,batch_sched_delay=0")
	set("GresTypes", strings.Join(c.gresTypes(), ","))
	// The CPUs and the memory of the nodes are invented, so that a small machine can run many small jobs.
	set("SlurmdParameters", "config_overrides")
	set("ReturnToService", "2")
	set("DefMemPerCPU", "1024")
	// A finished job must stay visible until its test has looked.
	set("MinJobAge", "3600")
	set("MailProg", "/bin/true")
	set("KillWait", "2")
	// A busy machine must not make Slurm give up on a node or on an answer.
	set("SlurmdTimeout", "3600")
	set("MessageTimeout", "20")
	if c.opts.Epilog != "" {
		set("Epilog", c.opts.Epilog)
	}
	set("TaskProlog", c.path("bin/task_prolog"))
	set("StateSaveLocation", c.path("state"))
	set("SlurmctldPidFile", c.path("run/slurmctld/pid"))
	set("SlurmctldLogFile", c.path("log/slurmctld.log"))
	set("SlurmctldDebug", "verbose")
	set("SlurmdSpoolDir", c.path("spool/%n"))
	set("SlurmdPidFile", c.path("run/%n.pid"))
	set("SlurmdLogFile", c.path("log/slurmd-%n.log"))
	set("SlurmdDebug", "verbose")
	// Of plugins with the same name Slurm takes the first.
	if c.opts.Plugin != "" || c.opts.GPUPlugin != "" {
		set("PluginDir", c.path("plugin/first")+":"+c.systemPlugins+":"+c.path("plugin"))
	}
	if plugins := c.submitPlugins(); len(plugins) > 0 {
		set("JobSubmitPlugins", strings.Join(plugins, ","))
	}
	var gpuNodes, cpuNodes []string
	for i, n := range c.opts.Nodes {
		fmt.Fprintf(&b, "NodeName=%s NodeHostname=localhost NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=%d", n.Name, c.nodePorts[i], n.CPUs, n.RealMemoryMiB)
		var gres []string
		if n.GPUs > 0 {
			gpuNodes = append(gpuNodes, n.Name)
			gres = append(gres, fmt.Sprintf("gpu:%s%d", typePrefix(n.GPUType), n.GPUs))
			if c.hasShards(n) {
				gres = append(gres, fmt.Sprintf("shard:%d", n.Shards))
			}
			if n.MPS > 0 {
				gres = append(gres, fmt.Sprintf("mps:%d", n.MPS))
			}
		} else {
			cpuNodes = append(cpuNodes, n.Name)
		}
		if gres = append(gres, n.Counted...); len(gres) > 0 {
			fmt.Fprintf(&b, " Gres=%s", strings.Join(gres, ","))
		}
		if len(n.Features) > 0 {
			fmt.Fprintf(&b, " Feature=%s", strings.Join(n.Features, ","))
		}
		b.WriteString("\n")
	}
	if len(gpuNodes) > 0 {
		fmt.Fprintf(&b, "PartitionName=%s Nodes=%s Default=YES MaxTime=INFINITE State=UP\n", GPUPartition, strings.Join(gpuNodes, ","))
	}
	if len(cpuNodes) > 0 {
		isDefault := ""
		if len(gpuNodes) == 0 {
			isDefault = " Default=YES"
		}
		fmt.Fprintf(&b, "PartitionName=%s Nodes=%s%s MaxTime=INFINITE State=UP\n", ProbePartition, strings.Join(cpuNodes, ","), isDefault)
	}
	return b.String()
}

// submitPlugins are the names of the plugins that see a job when it is submitted, in their order.
func (c *Cluster) submitPlugins() []string {
	var names []string
	if c.opts.Lua != "" {
		names = append(names, "lua")
	}
	if c.opts.Plugin != "" {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(c.opts.Plugin), "job_submit_"), ".so"))
	}
	return names
}

func typePrefix(gpuType string) string {
	if gpuType == "" {
		return ""
	}
	return gpuType + ":"
}

// gresConf is the text of gres.conf: one device file for each GPU, which also carries its part of the shards.
func (c *Cluster) gresConf() string {
	var b strings.Builder
	b.WriteString("AutoDetect=off\n")
	for _, n := range c.opts.Nodes {
		for i := range n.GPUs {
			device := c.devicePath(n.Name, i)
			fmt.Fprintf(&b, "NodeName=%s Name=gpu ", n.Name)
			if n.GPUType != "" {
				fmt.Fprintf(&b, "Type=%s ", n.GPUType)
			}
			fmt.Fprintf(&b, "File=%s\n", device)
			if c.hasShards(n) {
				fmt.Fprintf(&b, "NodeName=%s Name=shard Count=%d File=%s\n", n.Name, n.Shards/n.GPUs, device)
			}
			if n.MPS > 0 {
				fmt.Fprintf(&b, "NodeName=%s Name=mps Count=%d File=%s\n", n.Name, n.MPS/n.GPUs, device)
			}
		}
	}
	for _, n := range c.opts.Nodes {
		for _, counted := range n.Counted {
			name, count, _ := strings.Cut(counted, ":")
			fmt.Fprintf(&b, "NodeName=%s Name=%s Count=%s Flags=CountOnly\n", n.Name, name, count)
		}
	}
	return b.String()
}

// hasShards tells whether the node is given shards: Slurm knows them from 22.05.
func (c *Cluster) hasShards(n Node) bool { return n.Shards > 0 && release.Shards.In(c.version) }

// gresTypes are the kinds of resources of all nodes.
func (c *Cluster) gresTypes() []string {
	types := []string{"gpu"}
	for _, n := range c.opts.Nodes {
		names := make([]string, 0, 2+len(n.Counted))
		if c.hasShards(n) {
			names = append(names, "shard")
		}
		if n.MPS > 0 {
			names = append(names, "mps")
		}
		for _, counted := range n.Counted {
			name, _, _ := strings.Cut(counted, ":")
			names = append(names, name)
		}
		for _, name := range names {
			if !slices.Contains(types, name) {
				types = append(types, name)
			}
		}
	}
	return types
}

// cgroupConf has the nodes keep jobs in cgroups of version 2, or keeps slurmd from looking for cgroups, without which it dies: each release has its own word for that, and the oldest looks
// for none. The CPUs of the nodes are invented, and devices are not told apart by their numbers, so of these no cgroup is made.
func (c *Cluster) cgroupConf() string {
	v := c.version
	switch {
	case c.opts.Cgroup2:
		return "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainRAMSpace=yes\n"
	case release.CgroupDisabled.In(v):
		return "CgroupPlugin=disabled\n"
	case release.CgroupPlugin.In(v):
		return "CgroupPlugin=cgroup/v1\n"
	}
	return ""
}

func (c *Cluster) devicePath(node string, index int) string {
	return c.path(filepath.Join("dev", node, "nvidia"+strconv.Itoa(index)))
}

// searchLists are the variables of which the job's own entries stay, behind ours.
var searchLists = map[string]bool{"LD_LIBRARY_PATH": true, "PATH": true}

const taskPrologHead = `#!/bin/sh
# Puts the virtual GPU of this node under a job. A job that was given no GPU sees none.
[ -n "${CUDA_VISIBLE_DEVICES:-}" ] || exit 0

# Puts a folder first in a search list; a step inside a job has it there already.
first() { # NAME FOLDER LIST
	case ":$3:" in
	*:"$2":*) ;;
	*) printf 'export %s=%s%s\n' "$1" "$2" "${3:+:$3}" ;;
	esac
}

case "${SLURMD_NODENAME:-}" in
`

// taskProlog is the script that slurmstepd runs before every task, the batch script included. Slurm takes the lines
// `export NAME=value` of its output into the task's environment: that puts the node's virtual GPU under the job.
func (c *Cluster) taskProlog() string {
	var b strings.Builder
	b.WriteString(taskPrologHead)
	for _, n := range c.opts.Nodes {
		lines := c.gpuEnv(n)
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s)\n", n.Name)
		for _, line := range lines {
			name, value, _ := strings.Cut(line, "=")
			if searchLists[name] {
				fmt.Fprintf(&b, "  first %s %s \"${%s:-}\"\n", name, shellQuote(value), name)
				continue
			}
			fmt.Fprintf(&b, "  printf '%%s\\n' %s\n", shellQuote("export "+line))
		}
		b.WriteString("  ;;\n")
	}
	b.WriteString("esac\n")
	return b.String()
}

// gpuEnv is the environment of a job on the node: what the virtual GPU needs, then what the caller adds or overrides.
func (c *Cluster) gpuEnv(n Node) []string {
	if n.GPUs == 0 {
		return nil
	}
	var lines []string
	if c.opts.VGPUDir != "" {
		dir := c.path("share/vgpu")
		lines = append(lines,
			"LD_AUDIT="+filepath.Join(dir, "gresize-audit.so"),
			"LD_LIBRARY_PATH="+dir,
			"GRESIZE_VGPU_DIR="+dir,
			"TRITON_LIBCUDA_PATH="+dir,
			"GRESIZE_VGPU_COUNT="+strconv.Itoa(n.GPUs))
		if c.hasVGPUPrograms {
			lines = append(lines, "PATH="+c.path("share/vgpu-bin"))
		}
	}
	if len(n.GPUProfile) > 0 {
		lines = append(lines, "GRESIZE_VGPU_PROFILE="+c.profilePath(n.Name))
	}
	return append(lines, n.GPUEnv...)
}

func (c *Cluster) profilePath(node string) string {
	return c.path(filepath.Join("gpu", node+".profile"))
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
