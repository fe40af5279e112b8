package epilog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

// maxAnswerBytes is above the largest answer, which is a plan.
const maxAnswerBytes = 4 << 20

// Sender tells gresized something in the name of whoever runs it: munge proves who that is, or a key that only root and SlurmUser can read.
type Sender struct {
	// URL is probe.url of gresize.toml.
	URL string
	// Munge is the program, Socket that of munged; empty: its default place.
	Munge, Socket string
	// Key is the file of such a key, which is used in place of munge; empty: none.
	Key string
}

// mungeError says in munge's own words why there is no credential.
func mungeError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("munge: %w", err) // it was not even started
	}
	words := strings.ToValidUTF8(strings.TrimSpace(string(exit.Stderr)), "?")
	if words == "" {
		words = err.Error()
	}
	return fmt.Errorf("munge gave no credential; is munged running on this machine? Without munge (AuthType=auth/slurm) give -key /etc/slurm/slurm.key, and set actuals.key in gresize.toml. It says: %s", words)
}

// Post makes a credential of this cluster with a document inside, and returns the answer to it.
func (s Sender) Post(ctx context.Context, path string, document any) ([]byte, error) {
	data, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	credential, err := s.credential(ctx, data)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(s.URL, "/")+path, bytes.NewReader(credential))
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a redirect is not followed") }}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("speak to gresized: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return nil, fmt.Errorf("answer of gresized: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("gresized: %s: %.300s", response.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// credential proves who sends the document, which is in it.
func (s Sender) credential(ctx context.Context, document []byte) ([]byte, error) {
	if s.Key != "" {
		return seal(s.Key, document, time.Now())
	}
	args := []string{}
	if s.Socket != "" {
		args = append(args, "--socket="+s.Socket)
	}
	command := exec.CommandContext(ctx, s.Munge, args...)
	command.Stdin = bytes.NewReader(document)
	command.WaitDelay = time.Second
	credential, err := command.Output()
	if err != nil {
		return nil, mungeError(err)
	}
	return credential, nil
}
