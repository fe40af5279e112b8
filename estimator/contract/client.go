package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Command is how a plugin is started.
type Command struct {
	// Path and Args are the program; the path is absolute.
	Path string
	Args []string
	// Env is added to the few variables that every plugin gets. Nothing of the host's own environment is handed on.
	Env []string
	// Dir is where the plugin's socket lies, in a folder of its own that goes with the plugin; empty: the system's folder for such things.
	Dir string
	// Reads are folders and files that the plugin may read besides those that confine names; Hides are those below any of them that it may not.
	Reads, Hides []string
	// MemoryBytes limits the plugin's own memory; 0: DefaultMemoryBytes.
	MemoryBytes int64
	// StartTimeout is the time until the plugin must have said what it is; 0: DefaultStartTimeout.
	StartTimeout time.Duration
}

// What a Command stands for that does not say more.
const (
	DefaultMemoryBytes  = int64(512) << 20
	DefaultStartTimeout = 5 * time.Second
	// closeGrace is how long a plugin may take to end by itself.
	closeGrace = 500 * time.Millisecond
)

// Client is a plugin that runs. Its methods may be called by several goroutines at once.
type Client struct {
	client  *plugin.Client
	process *process
	conn    *grpc.ClientConn
	info    Info
	version int
}

// Start runs a plugin and asks who it is. On an error nothing of it is left.
func Start(ctx context.Context, command Command) (*Client, error) {
	if command.MemoryBytes == 0 {
		command.MemoryBytes = DefaultMemoryBytes
	}
	if command.StartTimeout == 0 {
		command.StartTimeout = DefaultStartTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, command.StartTimeout)
	defer cancel()
	p := newProcess(command)
	c := &Client{process: p, client: plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: map[int]plugin.PluginSet{Version: {pluginName: glue{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
			return p, p.prepare(spec.Env, dir)
		},
		SkipHostEnv:      true,
		StartTimeout:     command.StartTimeout,
		Logger:           hclog.NewNullLogger(),
		SyncStdout:       &p.output,
		SyncStderr:       &p.output,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: command.Dir},
	})}
	// go-plugin's Start knows no context: ending the process is what ends it.
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	if err := c.open(ctx); err != nil {
		c.Kill()
		reason := ErrStart
		if p.output.flooded() {
			reason = ErrFlood
		}
		select {
		case <-p.done: // go-plugin's words for it speak of lines and of its own protocol
			if ctx.Err() == nil && strings.Contains(err.Error(), "Failed to read any lines") {
				err = fmt.Errorf("it ended (%s) before it said where it listens: is it an estimator plugin? docs/plugins.md says what one does", p.epitaph())
			}
		case <-time.After(drainDuration):
		}
		return nil, fmt.Errorf("%w: %w%s", reason, err, p.lastWords())
	}
	return c, nil
}

func (c *Client) open(ctx context.Context) error {
	protocol, err := c.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(pluginName)
	if err != nil {
		return err
	}
	c.conn, c.version = raw.(*grpc.ClientConn), c.client.NegotiatedVersion()
	data, err := c.call(ctx, methodInfo, &emptypb.Empty{})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &c.info); err != nil {
		return fmt.Errorf("%w: info: %w", ErrAnswer, err)
	}
	if err := c.info.Validate(); err != nil {
		return fmt.Errorf("%w: info: %w", ErrAnswer, err)
	}
	return nil
}

// Info is what the plugin said of itself when it started.
func (c *Client) Info() Info { return c.info }

// ContractVersion is the version of the contract that both sides took.
func (c *Client) ContractVersion() int { return c.version }

// Unconfined names what the kernel could not take from the plugin; none: all of it.
func (c *Client) Unconfined() []string { return c.process.missing }

// Done is closed when the process has ended.
func (c *Client) Done() <-chan struct{} { return c.process.done }

// Estimate asks one question; the deadline is that of the context. Whatever comes back was checked. After an error that wraps
// ErrDeadline, ErrDied or ErrFlood the process is of no more use: end it with Close.
func (c *Client) Estimate(ctx context.Context, r Request) (estimator.Estimate, error) {
	question, err := pack(r)
	if err != nil {
		return estimator.Estimate{}, err
	}
	data, err := c.call(ctx, methodEstimate, question)
	if err != nil {
		return estimator.Estimate{}, err
	}
	return decodeAnswer(data, c.info, r)
}

func (c *Client) call(ctx context.Context, method string, in proto.Message) ([]byte, error) {
	out := &wrapperspb.BytesValue{}
	err := c.conn.Invoke(ctx, method, in, out, grpc.MaxCallRecvMsgSize(MaxAnswerBytes), grpc.MaxCallSendMsgSize(MaxRequestBytes))
	if err == nil {
		return out.GetValue(), nil
	}
	if c.process.output.flooded() {
		return nil, fmt.Errorf("%w: it wrote more than %d bytes%s", ErrFlood, floodBytes, c.process.lastWords())
	}
	s := status.Convert(err)
	text := fmt.Sprintf("%.2000s", s.Message())
	switch s.Code() {
	case codes.DeadlineExceeded:
		return nil, fmt.Errorf("%w%s", ErrDeadline, c.process.lastWords())
	case codes.Canceled:
		return nil, errors.Join(context.Cause(ctx), err)
	case codes.Unavailable:
		return nil, fmt.Errorf("%w: %s%s", ErrDied, c.process.epitaph(), c.process.lastWords())
	case codes.ResourceExhausted:
		return nil, fmt.Errorf("%w: %s", ErrFlood, text)
	case codes.Unknown, codes.Internal, codes.Unimplemented, codes.DataLoss:
		return nil, fmt.Errorf("%w: %s", ErrAnswer, text)
	}
	return nil, fmt.Errorf("%w: %s", ErrRefused, text)
}

// Close ends the plugin, its children included: politely at first, and by force half a second later. It may be called twice.
func (c *Client) Close() {
	timer := time.AfterFunc(closeGrace, c.process.kill)
	defer timer.Stop()
	c.client.Kill()
	c.process.kill()
}

// Kill ends the plugin at once, its children included, and waits until it has ended.
func (c *Client) Kill() {
	c.process.kill()
	c.client.Kill()
}
