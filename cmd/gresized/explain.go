package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"

	"github.com/gresize/gresize/daemon/actuals"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/logview"
)

// explainHandler tells the owner of a job what was done about it: munge proves who asks. A job of another user's is one that does not exist.
func explainHandler(log *decisionlog.Log, opener actuals.Opener, logger *slog.Logger) http.Handler {
	own := uint32(os.Geteuid())
	everybody := func(uint32) bool { return true }
	return actuals.Credentialed(logger, opener, everybody, "a user", func(ctx context.Context, uid uint32, payload []byte) (any, error) {
		wanted, err := epilog.ParseWanted(payload, epilog.SchemaExplain)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", actuals.ErrRefused, err)
		}
		var story decisionlog.Story
		if uid == 0 || uid == own {
			story, err = log.Story(ctx, wanted.JobID)
		} else {
			story, err = log.StoryOfOwner(ctx, wanted.JobID, uid)
		}
		if errors.Is(err, decisionlog.ErrNotFound) {
			return nil, fmt.Errorf("%w: gresize knows no job %d of yours", actuals.ErrRefused, wanted.JobID)
		}
		if err != nil {
			return nil, err
		}
		story = logview.OfOthers(story)
		var told epilog.Explained
		for _, l := range slices.Concat(logview.Explain(story), logview.OwnersWord(story.Job)) {
			told.Lines = append(told.Lines, epilog.ExplainedLine(l))
		}
		return told, nil
	})
}
