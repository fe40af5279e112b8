package decisionlog

import "testing"

// TestAddJobsIsAllOrNone: of a group with one job that cannot be stored none is, and nobody is told of any.
func TestAddJobsIsAllOrNone(t *testing.T) {
	l, _ := openLog(t)
	told := 0
	l.Observe(func(Observation) { told++ })
	first := Event{At: at, State: "held"}
	job := func(token string) NewJob { return NewJob{Job: sampleJob(token), First: first} }
	if ids, err := l.AddJobs(t.Context(), job("a"), job("b"), job("a")); err == nil || ids != nil {
		t.Fatalf("a token twice: %v %v", ids, err)
	}
	if stories, err := l.Unfinished(t.Context()); err != nil || len(stories) != 0 || told != 0 {
		t.Errorf("%d stories, %d told, %v", len(stories), told, err)
	}
	ids, err := l.AddJobs(t.Context(), job("a"), job("b"))
	if err != nil || len(ids) != 2 || told != 2 {
		t.Fatalf("%v %v, %d told", ids, err, told)
	}
	for i, token := range []string{"a", "b"} {
		if story, err := l.StoryByToken(t.Context(), token); err != nil || story.Job.ID != ids[i] || len(story.Events) != 1 {
			t.Errorf("%s: %+v %v", token, story, err)
		}
	}
}
