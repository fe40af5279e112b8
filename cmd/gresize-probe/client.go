package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// Limits on what the daemon may say and how often it is asked.
const (
	maxJobBytes    = 16 << 20
	maxAnswerBytes = 4 << 10
	attempts       = 3
	firstPause     = time.Second
	dialTimeout    = 5 * time.Second
	requestTimeout = 60 * time.Second
)

// client speaks to gresized about one probe.
type client struct {
	url, key string
	http     *http.Client
	pause    time.Duration
}

func newClient(url, key string) *client {
	return &client{url: url, key: key, pause: firstPause, http: &http.Client{
		Timeout: requestTimeout,
		// The job's environment may name a proxy; the key is not for it.
		Transport:     &http.Transport{Proxy: nil, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a redirect is not followed") },
	}}
}

func (c *client) job(ctx context.Context) (*probejob.Job, error) {
	var job *probejob.Job
	err := c.try(ctx, func() error {
		body, err := c.exchange(ctx, http.MethodGet, "", "", nil, maxJobBytes)
		if err != nil {
			return err
		}
		job = new(probejob.Job)
		if err := json.Unmarshal(body, job); err != nil {
			return final{fmt.Errorf("job: %w", err)}
		}
		if err := job.Validate(); err != nil {
			return final{fmt.Errorf("job: %w", err)}
		}
		return nil
	})
	return job, err
}

func (c *client) result(ctx context.Context, b *trace.Bundle) error {
	var data bytes.Buffer
	if err := trace.Write(&data, b); err != nil {
		return c.failure(ctx, estimator.Reason{Code: estimator.CodeBundleInvalid, Detail: trace.Clip([]byte(err.Error()), estimator.MaxDetailBytes)})
	}
	return c.post(ctx, "/result", "application/octet-stream", data.Bytes())
}

func (c *client) failure(ctx context.Context, why estimator.Reason) error {
	data, err := json.Marshal(why)
	if err != nil {
		return err
	}
	return c.post(ctx, "/failure", "application/json", data)
}

// inputs leaves the list of the files that the script read.
func (c *client) inputs(ctx context.Context, packed []byte) error {
	return c.post(ctx, "/inputs", "application/octet-stream", packed)
}

// unchanged reports that all files are as they were for an earlier job.
func (c *client) unchanged(ctx context.Context, row int64) error {
	data, err := json.Marshal(probejob.Unchanged{Job: row})
	if err != nil {
		return err
	}
	return c.post(ctx, "/unchanged", "application/json", data)
}

func (c *client) post(ctx context.Context, path, kind string, data []byte) error {
	// What was found out is worth reporting even when this process has been told to end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempts*requestTimeout)
	defer cancel()
	return c.try(ctx, func() error {
		_, err := c.exchange(ctx, http.MethodPost, path, kind, data, maxAnswerBytes)
		return err
	})
}

// final marks an error that another attempt would meet again.
type final struct{ error }

func (c *client) try(ctx context.Context, f func() error) error {
	pause := c.pause
	for i := 1; ; i++ {
		err := f()
		if err == nil || i == attempts || errors.As(err, new(final)) {
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

func (c *client) exchange(ctx context.Context, method, path, kind string, data []byte, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, final{fmt.Errorf("ask gresized: %w", err)}
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask gresized: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("answer of gresized: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, final{fmt.Errorf("answer of gresized: more than %d bytes", limit)}
	}
	if response.StatusCode >= http.StatusInternalServerError {
		return nil, fmt.Errorf("gresized: %s: %.200s", response.Status, body)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, final{fmt.Errorf("gresized: %s: %.200s", response.Status, body)}
	}
	return body, nil
}
