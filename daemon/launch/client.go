package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// RefusedError says that gresize-launch answered and did not submit the probe.
type RefusedError struct{ Detail string }

func (e *RefusedError) Error() string { return "gresize-launch: " + e.Detail }

// Client asks gresize-launch over its socket.
type Client struct {
	Path    string
	Timeout time.Duration
}

// Submit asks for one probe and returns the id of its Slurm job. After a *RefusedError there is no
// such job; after any other error there may be one, found by its name.
func (c *Client) Submit(ctx context.Context, r Request) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", c.Path)
	if err != nil {
		// Nobody was asked, so nothing was submitted.
		return 0, &RefusedError{Detail: err.Error()}
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return 0, fmt.Errorf("ask gresize-launch: %w", err)
	}
	// A daemon that ends does not wait for the answer.
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := write(connection, &r, maxRequestBytes); err != nil {
		return 0, fmt.Errorf("ask gresize-launch: %w", err)
	}
	var reply Reply
	if err := read(connection, &reply, maxReplyBytes); err != nil {
		return 0, fmt.Errorf("answer of gresize-launch: %w", err)
	}
	switch {
	case reply.Unsure:
		return 0, errors.New("gresize-launch: " + reply.Error)
	case reply.Error != "":
		return 0, &RefusedError{Detail: reply.Error}
	case reply.JobID == 0:
		return 0, errors.New("gresize-launch answered without a job id")
	}
	return reply.JobID, nil
}
