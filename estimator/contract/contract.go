// Package contract is the boundary between gresize and an estimator that is a
// program of its own: the question, the answer, the versions of both, and the
// life of the process. A plugin calls Serve; a host calls Start. It is the only
// package that knows go-plugin and gRPC. docs/plugins.md is for authors.
package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/hashicorp/go-plugin"
)

// Version is the newest version of the contract that this package speaks. Host and plugin take the highest that both have.
const Version = 1

// Limits of what crosses the boundary.
const (
	// MaxAnswerBytes bounds an answer; the largest valid Estimate is far below it.
	MaxAnswerBytes = 1 << 20
	// MaxRequestBytes bounds a question. The bundle is not in it, only its path.
	MaxRequestBytes = 1 << 20
	maxNameBytes    = 64
)

// SchemaRequest names the JSON form of a question. It changes when a key changes its meaning.
const SchemaRequest = "gresize.estimate-request/1"

// Faults of a plugin that a host tells apart.
var (
	// ErrStart means that no working plugin came of the command.
	ErrStart = errors.New("plugin does not start")
	// ErrDeadline means that the time of a call was over.
	ErrDeadline = errors.New("plugin does not answer in time")
	// ErrDied means that the process ended during a call.
	ErrDied = errors.New("plugin died")
	// ErrFlood means that the process was ended because it wrote or answered without measure.
	ErrFlood = errors.New("plugin floods its host")
	// ErrAnswer means that the answer cannot be true.
	ErrAnswer = errors.New("plugin gives an invalid answer")
	// ErrRefused means that the plugin itself reports an error, for instance for a damaged bundle.
	ErrRefused = errors.New("plugin reports an error")
)

// Info is what an estimator says of itself.
type Info struct {
	// Name is the estimator's name, the same as in all its answers.
	Name string `json:"name"`
	// Version is the release of the estimator, for the record.
	Version string `json:"version"`
}

// Request is one question. Bundle is the path of a trace bundle, GPU the card that the answer is about.
type Request struct {
	Schema string      `json:"schema"`
	Bundle string      `json:"bundle"`
	GPU    gpu.Profile `json:"gpu"`
}

// Estimator is what a plugin implements. Both methods may be called by several goroutines at once.
type Estimator interface {
	Info() Info
	// Estimate answers one question. An error says that the question cannot be dealt with; what is merely not known is an
	// estimate with the confidence unknown and a reason.
	Estimate(ctx context.Context, r Request) (estimator.Estimate, error)
}

// NewRequest makes a question.
func NewRequest(bundle string, card *gpu.Profile) Request {
	return Request{Schema: SchemaRequest, Bundle: bundle, GPU: *card}
}

var plainName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// Validate checks what a plugin says of itself.
func (i Info) Validate() error {
	if len(i.Name) > maxNameBytes || !plainName.MatchString(i.Name) {
		return fmt.Errorf("name: %.80q is no plain name of at most %d small letters, digits, _ and -", i.Name, maxNameBytes)
	}
	if i.Version == "" || len(i.Version) > maxNameBytes || strings.ContainsFunc(i.Version, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("version: %.80q is empty, longer than %d bytes, or not to be printed", i.Version, maxNameBytes)
	}
	return nil
}

// Validate checks a question on the plugin's side.
func (r Request) Validate() error {
	if r.Schema != SchemaRequest {
		return fmt.Errorf("schema: %q, want %q", r.Schema, SchemaRequest)
	}
	if r.Bundle == "" {
		return errors.New("bundle: no path")
	}
	return r.GPU.Validate()
}

// decodeAnswer reads an answer as a stranger's: its form, its ranges, and that it is an answer to this question by this estimator.
func decodeAnswer(data []byte, info Info, r Request) (estimator.Estimate, error) {
	var e estimator.Estimate
	if err := json.Unmarshal(data, &e); err != nil {
		return estimator.Estimate{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if err := CheckAnswer(&e, info, r.GPU.ID); err != nil {
		return estimator.Estimate{}, err
	}
	return e, nil
}

// CheckAnswer says why an estimate cannot be the answer of an estimator for a card.
func CheckAnswer(e *estimator.Estimate, info Info, card string) error {
	switch err := e.Validate(); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	case e.Estimator != info.Name:
		return fmt.Errorf("%w: estimator: %.80q, but the plugin calls itself %q", ErrAnswer, e.Estimator, info.Name)
	case e.GPU != card:
		return fmt.Errorf("%w: gpu: %.80q, but the question was about %q", ErrAnswer, e.GPU, card)
	case e.Confidence == estimator.Unknown && len(e.Reasons) == 0:
		return fmt.Errorf("%w: reasons: none, though the confidence is unknown", ErrAnswer)
	}
	return nil
}

// handshake keeps a plugin that a person starts by hand from waiting for a host; it is no secret.
var handshake = plugin.HandshakeConfig{MagicCookieKey: "GRESIZE_ESTIMATOR_PLUGIN", MagicCookieValue: "estimator"}

// pluginName is the key of the one thing that a plugin offers.
const pluginName = "estimator"
