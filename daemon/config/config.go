// Package config owns gresize.toml: strict reading, the defaults, and errors
// that name file, line, column and the way out. It looks nothing up: whether a
// path exists or a GPU profile is known is checked by those who use it.
package config

import (
	"time"

	"github.com/gresize/gresize/estimator/gpu"
)

// Version is the version of the file's form that this program reads.
const Version = 1

// Limits of the file.
const (
	// MaxFileBytes is far above any table that a person writes.
	MaxFileBytes = 1 << 20
	// MaxHold is the longest that a job may be kept back; the plugin refuses more.
	MaxHold = 300 * time.Second
	// MinHold leaves time for one look at the queue and one short probe.
	MinHold    = 20 * time.Second
	maxTargets = 256
)

// Mode says how far gresize may go.
type Mode string

// The modes. A fresh install is in shadow.
const (
	Off     Mode = "off"
	Shadow  Mode = "shadow"
	Enforce Mode = "enforce"
)

// Config is the whole file.
type Config struct {
	Version int  `toml:"version"`
	Mode    Mode `toml:"mode"`
	// DefaultProfile is the GPU model on which a job is probed that asks for any GPU.
	DefaultProfile string         `toml:"default_profile"`
	Socket         Socket         `toml:"socket"`
	Log            Log            `toml:"log"`
	Slurm          Slurm          `toml:"slurm"`
	Probe          Probe          `toml:"probe"`
	Jobs           Jobs           `toml:"jobs"`
	Policy         Policy         `toml:"policy"`
	GPU            map[string]GPU `toml:"gpu"`
	Targets        []Target       `toml:"target"`
	Shard          Shard          `toml:"shard"`
	Counted        Counted        `toml:"vram"`
	Host           Host           `toml:"host"`
	Swap           Swap           `toml:"swap"`
	Estimators     []Estimator    `toml:"estimator"`
	// Cache says when an earlier job's answer is good for a later one.
	Cache   Cache   `toml:"cache"`
	Margin  Margin  `toml:"margin"`
	OOM     OOM     `toml:"oom"`
	Actuals Actuals `toml:"actuals"`
	Metrics Metrics `toml:"metrics"`
	Web     Web     `toml:"web"`
}

// Socket is where the plugin finds the daemon.
type Socket struct {
	Path string `toml:"path"`
	// AllowUsers may connect, by name or number; root and the daemon's own user always may.
	AllowUsers []string `toml:"allow_users"`
	// MaxConnections are served at once; more are closed, and their jobs pass unchanged.
	MaxConnections int `toml:"max_connections"`
}

// Log is the decision log.
type Log struct {
	Path string `toml:"path"`
	// Spool is a folder for what must survive a restart but not stay: scripts, environments, bundles of unfinished jobs.
	Spool string `toml:"spool"`
	// KeepDays is after how many days the rows of an ended job are deleted; 0: never.
	KeepDays int `toml:"keep_days"`
}

// Slurm is where the cluster's commands are.
type Slurm struct {
	Conf     string   `toml:"conf"`
	Scontrol string   `toml:"scontrol"`
	Timeout  Duration `toml:"timeout"`
}

// Probe is how a job is tried out.
type Probe struct {
	Partition string `toml:"partition"`
	// Account and QOS replace the job's own when they are given.
	Account string `toml:"account"`
	QOS     string `toml:"qos"`
	// Listen is the address on which probes report; URL is how a probe's node reaches it, by default http://<listen>.
	Listen    string   `toml:"listen"`
	URL       string   `toml:"url"`
	TimeLimit Duration `toml:"time_limit"`
	CPUs      int      `toml:"cpus"`
	Memory    Bytes    `toml:"memory"`
	Steps     int      `toml:"steps"`
	Budget    Duration `toml:"budget"`
	// Hold is how long a job may wait for its probe before it starts as it was asked for.
	Hold         Duration `toml:"hold"`
	LaunchSocket string   `toml:"launch_socket"`
	MaxRunning   int      `toml:"max_running"`
	// StartWithin is how long a job waits for its probe to begin before it is let go; 0: until its hold is over.
	StartWithin Duration `toml:"start_within"`
	// Breaker is after how many probes in a row without a report no job is held any more, 0: never; BreakerPause is when one is tried again.
	Breaker      int      `toml:"breaker"`
	BreakerPause Duration `toml:"breaker_pause"`
}

// Jobs says which jobs are handled. Of each pair of lists, an empty first one takes all, and the second one has the last word.
type Jobs struct {
	Partitions       []string `toml:"partitions"`
	ExceptPartitions []string `toml:"except_partitions"`
	Accounts         []string `toml:"accounts"`
	ExceptAccounts   []string `toml:"except_accounts"`
	QOS              []string `toml:"qos"`
	ExceptQOS        []string `toml:"except_qos"`
	Users            []string `toml:"users"`
	ExceptUsers      []string `toml:"except_users"`
	// Arrays says whether job arrays are looked at, by their first, middle and last task.
	Arrays bool `toml:"arrays"`
}

// Policy says when and by how much a request may change.
type Policy struct {
	// ActOn are the levels of confidence at which a request may be changed.
	ActOn         []string `toml:"act_on"`
	MarginPercent int      `toml:"margin_percent"`
	MarginMin     Bytes    `toml:"margin_min"`
	Upsizing      bool     `toml:"upsizing"`
	// Watch is how long a changed job is looked after; one that can never start gets its original request back.
	Watch Duration `toml:"watch"`
	// MaxWait is how long a changed job may wait for a card before it gets its original request back; 0: as long as it takes.
	MaxWait Duration `toml:"max_wait"`
}

// GPU ties a GPU type or a feature of the site to a GPU profile.
type GPU struct {
	Profile string `toml:"profile"`
}

// Target is one row of the site's table: a request and the memory that it stands for.
type Target struct {
	Fits       Bytes  `toml:"fits"`
	Gres       string `toml:"gres"`
	Constraint string `toml:"constraint"`
}

// Shard is the site's shared GPUs.
type Shard struct {
	// Per is the memory that one shard stands for; 0: shards are not used.
	Per Bytes `toml:"per"`
	// Max is the number of shards of one GPU; a job that needs more is not given shards.
	Max int `toml:"max"`
}

// Counted is a count-only resource of the nodes that stands for GPU memory, as in --gres=gpu:1,vram:23.
type Counted struct {
	// Gres is its name in GresTypes; empty: the site has none.
	Gres string `toml:"gres"`
	// Per is what one of it stands for, Max the most that one GPU has; 0: not bounded.
	Per Bytes `toml:"per"`
	Max int64 `toml:"max"`
}

// Host says whether the host memory that --mem asks for may be lowered.
type Host struct {
	LowerMem      bool `toml:"lower_mem"`
	MarginPercent int  `toml:"margin_percent"`
	// MarginMin is for each GPU: it covers NVIDIA's libraries, which a probe does not load.
	MarginMin Bytes `toml:"margin_min"`
	// Floor is the least that is asked for.
	Floor Bytes `toml:"floor"`
}

// Swap says whether a job may get a card that is one size too small, with a plan by which what does not fit goes to host memory and comes back (docs/run.md).
type Swap struct {
	Allow bool `toml:"allow"`
	// Slowdown is by how many times a step may be longer.
	Slowdown float64 `toml:"slowdown"`
}

// maxSlowdown is above what anybody wants to wait for.
const maxSlowdown = 10

func (c *Config) checkSwap(found *faults) {
	if s := c.Swap.Slowdown; !(s >= 1 && s <= maxSlowdown) {
		found.add("swap.slowdown", "1.05 lets a step be 5 % longer, 1 not at all", "%v is not between 1 and %d", s, maxSlowdown)
	}
	if c.Swap.Allow && !c.OOM.Requeue {
		found.add("swap.allow", "[oom] requeue = true", "a job that dies on a card that is too small for it has to run again with what its owner asked for, and oom.requeue is false")
	}
	if c.Swap.Allow && c.Actuals.Key != "" {
		found.add("swap.allow", "leave it out where Slurm does without munge", "a job's node fetches its plan in the name of the job's owner, which only munge proves, and actuals.key is set")
	}
}

// Defaults is what a file starts from that gives nothing but its version.
func Defaults() Config {
	return Config{
		Mode:           Shadow,
		Cache:          CacheVerify,
		Margin:         Margin{TargetFailureRate: 0.01, FloorPercent: 1, FloorMin: 128 << 20},
		Actuals:        Actuals{Unmunge: "/usr/bin/unmunge", Sacct: "/usr/bin/sacct"},
		DefaultProfile: gpu.DefaultID,
		Socket:         Socket{Path: "/run/gresize/submit.sock", AllowUsers: []string{"slurm"}, MaxConnections: 256},
		Log:            Log{Path: "/var/lib/gresize/decisions.db", Spool: "/var/lib/gresize/spool"},
		Slurm:          Slurm{Scontrol: "/usr/bin/scontrol", Timeout: Duration(10 * time.Second)},
		Probe: Probe{
			Listen: "127.0.0.1:8917", TimeLimit: Duration(5 * time.Minute), CPUs: 2, Memory: 4 << 30, Steps: 4, Budget: Duration(2 * time.Minute),
			Hold: Duration(MaxHold), LaunchSocket: "/run/gresize-launch/launch.sock", MaxRunning: 8, StartWithin: Duration(2 * time.Minute),
			Breaker: 6, BreakerPause: Duration(time.Minute),
		},
		Jobs:   Jobs{Arrays: true},
		Policy: Policy{ActOn: []string{"exact", "high"}, MarginPercent: 5, MarginMin: 256 << 20, Watch: Duration(time.Minute)},
		Swap:   Swap{Slowdown: 1.05},
		Web:    Web{Hosts: []string{}, KeepBundles: 256 << 20},
		Host:   Host{MarginPercent: 50, MarginMin: 4 << 30, Floor: 4 << 30},
	}
}
