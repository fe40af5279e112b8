package e2e

import (
	"context"
	"slices"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/replay"
	"github.com/gresize/gresize/daemon/site"
)

// replayed decides every job of the log again, with the configuration that was in force, and complains of each for which something else comes out. It returns how many were decided.
func (c *chaos) replayed() (decided int) {
	c.t.Helper()
	loaded, _, err := site.Load(c.config)
	must(c.t, err)
	log, err := c.open()
	must(c.t, err)
	defer log.Close()
	player := replay.Player{Rules: loaded.Rules(), ProfileOf: loaded.ProfileOf}
	var tokens []string
	must(c.t, log.Each(context.Background(), decisionlog.Filter{}, func(l decisionlog.Line) error {
		tokens = append(tokens, l.Job.Token)
		return nil
	}))
	for _, token := range tokens {
		s, err := log.StoryByToken(context.Background(), token)
		must(c.t, err)
		i := slices.IndexFunc(s.Events, func(e decisionlog.Event) bool { return e.State == jobs.StateDecided })
		if i < 0 {
			continue // its owner or the time was faster
		}
		decided++
		d := s.Decisions[slices.IndexFunc(s.Decisions, func(d decisionlog.Decision) bool { return d.Code == s.Events[i].Code })]
		if again := player.Decide(s.Job, s.Estimates, d.Margin); again.Verdict != d.Verdict || again.Code != d.Code || again.Reason != d.Reason || again.Now != d.Change.Result {
			c.t.Errorf("job %d was decided as %s %s (%s), and comes out as %+v", s.Job.ID, d.Verdict, d.Code, d.Reason, again)
		}
	}
	return decided
}
