package epilog

import (
	"errors"
	"fmt"

	"github.com/gresize/gresize/internal/strictjson"
)

// SchemaExplain names the JSON form of Wanted.
const SchemaExplain = "gresize.explain/1"

// PathExplain is where the owner of a job asks about it, on the address of the probes.
const PathExplain = "/v1/explain"

const maxWantedBytes = 1 << 10

// Wanted is the job of which its owner asks: to have it explained, or for its plan.
type Wanted struct {
	Schema string `json:"schema"`
	JobID  uint32 `json:"job_id"`
}

// ParseWanted reads it defensively; schema says which of the two is expected.
func ParseWanted(data []byte, schema string) (Wanted, error) {
	var w Wanted
	if err := strictjson.Unmarshal(data, maxWantedBytes, &w); err != nil {
		return w, fmt.Errorf("question: %w", err)
	}
	switch {
	case w.Schema != schema:
		return w, fmt.Errorf("schema: %q, want %q", w.Schema, schema)
	case w.JobID == 0:
		return w, errors.New("job_id: 0 is no job")
	}
	return w, nil
}

// Explained is the page for the owner, line by line; a line without a name goes on with what the one before it is about.
type Explained struct {
	Lines []ExplainedLine `json:"lines"`
}

// ExplainedLine is one line of it.
type ExplainedLine struct {
	Name string `json:"name,omitempty"`
	Text string `json:"text"`
}
