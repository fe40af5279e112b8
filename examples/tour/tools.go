package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/report"
	"github.com/gresize/gresize/slurm/minicluster"
)

func (t *tour) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// ok is a claim that was checked.
func (t *tour) ok(format string, args ...any) {
	t.checks++
	fmt.Printf("  ok    %s\n", fmt.Sprintf(format, args...))
}

// claim says what holds, or is an error with the same words.
func (t *tour) claim(holds bool, format string, args ...any) error {
	if !holds {
		return fmt.Errorf("not so: %s", fmt.Sprintf(format, args...))
	}
	t.ok(format, args...)
	return nil
}

// print shows what a person types and what comes of it.
func (t *tour) print(line, out string) {
	fmt.Println("$ " + line)
	if out = strings.TrimRight(out, "\n"); out != "" {
		fmt.Println("  " + strings.ReplaceAll(out, "\n", "\n  "))
	}
}

// command runs a program and shows it in the words of a person who has it in the usual place.
func (t *tour) command(ctx context.Context, line, program string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	text := strings.ReplaceAll(string(out), t.root, "")
	t.print(line, text)
	if err != nil {
		return text, fmt.Errorf("%s: %w", line, err)
	}
	return text, nil
}

// gresize runs the command-line tool on this site's configuration, and shows it.
func (t *tour) gresize(ctx context.Context, args ...string) (string, error) {
	out, err := t.quiet(ctx, args...)
	t.print("gresize "+strings.Join(args, " "), out)
	return out, err
}

func (t *tour) quiet(ctx context.Context, args ...string) (string, error) {
	return t.site.Gresize(ctx, append(args[:len(args):len(args)], "--config", t.site.ConfigPath())...)
}

func (t *tour) log(ctx context.Context, args ...string) (string, error) {
	return t.quiet(ctx, append([]string{"log"}, args...)...)
}

func (t *tour) story(ctx context.Context, name string) (string, error) {
	return t.quiet(ctx, "show", t.ids[name])
}

// sum is the report in the form for programs.
func (t *tour) sum(ctx context.Context) (report.Report, error) {
	var sum report.Report
	out, err := t.quiet(ctx, "report", "--json")
	if err != nil {
		return sum, err
	}
	return sum, json.Unmarshal([]byte(out), &sum)
}

// decision is the latest of a job; the zero value while there is none.
func (t *tour) decision(ctx context.Context, name string) (decisionlog.Decision, error) {
	out, err := t.quiet(ctx, "show", "--json", t.ids[name])
	if err != nil {
		if strings.Contains(out, "has no such job") {
			err = nil
		}
		return decisionlog.Decision{}, err
	}
	var story decisionlog.Story
	if err := json.Unmarshal([]byte(out), &story); err != nil || len(story.Decisions) == 0 {
		return decisionlog.Decision{}, err
	}
	return story.Decisions[len(story.Decisions)-1], nil
}

// sbatch submits as the user and keeps the job's id under a name.
func (t *tour) sbatch(ctx context.Context, name string, args ...string) error {
	id, printed, err := t.site.Sbatch(ctx, t.Python, nil, args...)
	if err != nil {
		return err
	}
	t.ids[name] = id
	typed := make([]string, len(args))
	for i, arg := range args {
		if typed[i] = arg; strings.Contains(arg, " ") {
			typed[i] = "'" + arg + "'"
		}
	}
	t.print("sbatch "+strings.Join(typed, " "), printed)
	if printed != "Submitted batch job "+id {
		return fmt.Errorf("sbatch says %q: programs read what it prints", printed)
	}
	return nil
}

func (t *tour) ends(ctx context.Context, name, state string) (minicluster.Job, error) {
	return t.site.Cluster.WaitJob(ctx, t.ids[name], state, jobTimeout)
}

// until waits for what a daemon does by itself.
func (t *tour) until(ctx context.Context, what string, done func() (bool, error)) error {
	for deadline := time.Now().Add(reportTimeout); ; {
		holds, err := done()
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err == nil && holds:
			return nil
		case time.Now().After(deadline):
			if err != nil {
				return fmt.Errorf("waited %s for %s: %w", reportTimeout, what, err)
			}
			return fmt.Errorf("waited %s for %s", reportTimeout, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// installed is the build folder of a site whose parts are those that were installed.
func (t *tour) installed() (string, error) {
	view := filepath.Join(t.root, "site")
	if err := os.Mkdir(view, 0o755); err != nil {
		return "", err
	}
	for part, at := range map[string]string{"bin": "usr/bin", "libexec": "usr/libexec/gresize", "lib": "usr/lib/gresize", "plugin": "usr/lib/slurm"} {
		if err := os.Symlink(filepath.Join(t.root, at), filepath.Join(view, part)); err != nil {
			return "", err
		}
	}
	return view, nil
}

// grep is the lines that begin with, or hold, one of the words.
func grep(text string, words ...string) string {
	var found []string
	for line := range strings.Lines(text) {
		for _, word := range words {
			if strings.Contains(line, word) {
				found = append(found, strings.TrimRight(line, "\n"))
				break
			}
		}
	}
	return strings.Join(found, "\n")
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func shorten(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return text
}
