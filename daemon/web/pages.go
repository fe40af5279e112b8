package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/report"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/plot"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// frame is what every page has around its content.
type frame struct {
	Title, Version, Sheet string
	// Here is the entry of the menu.
	Here string
	Data any
}

var (
	pages = template.Must(template.New("").Funcs(template.FuncMap{
		"hours":   hours,
		"count":   count,
		"signed":  func(p float64) string { return fmt.Sprintf("%+.1f %%", p) },
		"percent": func(p float64) string { return fmt.Sprintf("%.1f %%", p) },
		"print":   func(s any) string { return printable.Clip(fmt.Sprint(s), logview.MaxTextRunes) },
		"dash":    func(s string) string { return map[bool]string{true: " dash"}[s == "-"] },
		"slug":    func(s string) string { return strings.ReplaceAll(s, " ", "-") },
		"why":     logview.Why,
		"px":      func(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) },
	}).ParseFS(files, "pages/*.html"))
	// sheet changes its address with its content, so that no browser keeps an old one.
	sheet = sheetAddress()
)

// hours are whole, but for few of them.
func hours(h float64) string {
	digits := 0
	if math.Abs(h) < 10 {
		digits = 1
	}
	if text := strconv.FormatFloat(h, 'f', digits, 64); strings.Trim(text, "-0.") != "" {
		return text
	}
	return "0"
}

// count is a number with its noun, whose plural has an s.
func count(n any, noun string) string {
	text := fmt.Sprint(n)
	if text == "1" {
		return "1 " + noun
	}
	return text + " " + noun + "s"
}

func sheetAddress() string {
	text, err := files.ReadFile("pages/style.css")
	if err != nil {
		panic(err) // it is part of the program
	}
	sum := sha256.Sum256(text)
	return "/style.css?v=" + hex.EncodeToString(sum[:6])
}

func (s *Server) render(a answer) ([]byte, error) {
	var out bytes.Buffer
	err := pages.ExecuteTemplate(&out, a.template, frame{Title: a.title, Version: s.config.Version, Sheet: sheet, Here: strings.TrimSuffix(a.template, ".html"), Data: a.data})
	return out.Bytes(), err
}

// choiceFields are the filters of `gresize log`.
var choiceFields = []string{"user", "partition", "verdict", "state", "since", "until"}

// noPartition is how the form asks for jobs that named no partition.
const noPartition = "-"

// choiceOf reads the filters of a query.
func choiceOf(fields map[string]string, now time.Time) (decisionlog.Filter, error) {
	choice := logview.Choice{User: fields["user"], Verdict: fields["verdict"], State: fields["state"], Since: fields["since"], Until: fields["until"]}
	switch p := fields["partition"]; p {
	case "":
	case noPartition:
		choice.Partition = new(string)
	default:
		choice.Partition = &p
	}
	filter, err := choice.Filter("", now)
	if err != nil {
		return filter, fault{http.StatusBadRequest, printable.Clip(err.Error(), 300)}
	}
	return filter, nil
}

// form is what the form shows again.
type form struct {
	Fields           map[string]string
	Verdicts, States []string
	Problem          string
}

func newForm(fields map[string]string) form {
	return form{Fields: fields, Verdicts: logview.Verdicts, States: logview.States}
}

// queryOf is an address with the filters and one more field.
func queryOf(path string, fields map[string]string, name, value string) string {
	q := url.Values{}
	for _, field := range choiceFields {
		if fields[field] != "" {
			q.Set(field, fields[field])
		}
	}
	if value != "" {
		q.Set(name, value)
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// listData is the content of the list.
type listData struct {
	Form form
	Rows []listRow
	// Next and First are addresses of other pages of the list, empty where there are none; Sum is that of the report of the same jobs.
	Next, First, Sum string
	// Chosen says that a filter is in force.
	Chosen bool
	// Summary is nil on pages of chosen or earlier jobs.
	Summary *summary
}

type listRow struct {
	logview.Row
	ID  int64
	UTC string
}

func (s *Server) list(r *http.Request) (answer, error) {
	fields, err := onlyFields(r, append(slices.Clone(choiceFields), "before", "job")...)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	if job := fields["job"]; job != "" {
		return s.jobOfNumber(ctx, job)
	}
	filter, err := choiceOf(fields, time.Now())
	if err != nil {
		return answer{}, err
	}
	data := listData{Form: newForm(fields), Chosen: filter != decisionlog.Filter{}}
	if before := fields["before"]; before != "" {
		if filter.Before, err = decisionlog.ParsePlace(before); err != nil {
			return answer{}, fault{http.StatusBadRequest, printable.Clip("before: "+err.Error(), 200)}
		}
		data.First = queryOf("/", fields, "", "")
	}
	lines, err := s.config.Log.List(ctx, rowsPerPage+1, filter)
	if err != nil {
		return answer{}, err
	}
	if len(lines) > rowsPerPage {
		lines = lines[:rowsPerPage]
		data.Next = queryOf("/", fields, "before", lines[rowsPerPage-1].Place().String())
	}
	for _, l := range lines {
		row := s.rowOf(l)
		data.Rows = append(data.Rows, row)
	}
	data.Sum = queryOf("/report", fields, "", "")
	if !data.Chosen && data.First == "" && len(lines) > 0 {
		data.Summary = s.sums.of(ctx, s.config.Sums, s.config.Words, s.config.Now())
	}
	return answer{template: "list.html", title: "Decisions", data: data}, nil
}

func (s *Server) rowOf(l decisionlog.Line) listRow {
	row := listRow{Row: logview.RowOf(l, &s.names), ID: l.Job.ID, UTC: l.Job.SubmittedAt.UTC().Format(time.RFC3339)}
	row.Name = printable.Clip(l.Job.Name, 40) // a window is wider than a terminal
	return row
}

// jobOfNumber leads from Slurm's number of a job to its page.
func (s *Server) jobOfNumber(ctx context.Context, number string) (answer, error) {
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil || id == 0 {
		return answer{}, fault{http.StatusBadRequest, "job: write Slurm's number of the job, as squeue shows it."}
	}
	story, err := s.config.Log.Story(ctx, uint32(id))
	if err != nil {
		return answer{}, err
	}
	return answer{redirect: fmt.Sprintf("/row/%d", story.Job.ID)}, nil
}

// jobData is the content of one job's page.
type jobData struct {
	Job      logview.Row
	Explain  []logview.StoryLine
	Word     []logview.StoryLine
	Facts    []logview.StoryLine
	Steps    []logview.Step
	Memory   memory
	Asked    string
	Now      string
	Needs    string
	NeedNote string
}

// memory is what is known of where the memory of a job goes.
type memory struct {
	// Missing says why there is no picture.
	Missing string
	// Earlier is the page of the job from which the answer was taken over, where there is no picture.
	Earlier string
	// Picture is its address.
	Picture  string
	Height   int
	Alt      string
	Subtitle string
	Owners   []plot.OwnerLine
	// Others are the addresses of the pages with the other GPUs of the job.
	Others []link
}

type link struct {
	Address, Text string
	Here          bool
}

func (s *Server) storyOf(ctx context.Context, r *http.Request) (decisionlog.Story, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id <= 0 {
		return decisionlog.Story{}, fault{http.StatusNotFound, "A row of the log has a number."}
	}
	story, err := s.config.Log.StoryOfRow(ctx, id)
	return logview.Public(story), err
}

// rankOf reads which GPU of a job is asked for.
func rankOf(fields map[string]string) (int, error) {
	if fields["gpu"] == "" {
		return -1, nil
	}
	n, err := strconv.ParseUint(fields["gpu"], 10, 16)
	if err != nil || n >= estimator.MaxRanks {
		return 0, fault{http.StatusBadRequest, "gpu: write its number, from 0."}
	}
	return int(n), nil
}

// askedFor is the story of the job that a request names, and the GPU of it.
func (s *Server) askedFor(ctx context.Context, r *http.Request) (story decisionlog.Story, rank int, err error) {
	fields, err := onlyFields(r, "gpu")
	if err != nil {
		return story, 0, err
	}
	if rank, err = rankOf(fields); err != nil {
		return story, 0, err
	}
	story, err = s.storyOf(ctx, r)
	return story, rank, err
}

func (s *Server) job(r *http.Request) (answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	story, rank, err := s.askedFor(ctx, r)
	if err != nil {
		return answer{}, err
	}
	line := decisionlog.Line{Job: story.Job}
	if n := len(story.Decisions); n > 0 {
		line.Decision = &story.Decisions[n-1]
	}
	data := jobData{Job: logview.RowOf(line, &s.names), Explain: logview.Explain(story), Word: logview.OwnersWord(story.Job), Facts: logview.Facts(story), Steps: logview.Steps(story),
		Asked: printable.Clip(story.Job.Asked.String(), logview.MaxTextRunes)}
	data.Job.Name = printable.Clip(story.Job.Name, 200)
	if d := line.Decision; d != nil {
		if d.Verdict == decision.Rewrite {
			data.Now = printable.Clip(d.Change.Result.String(), logview.MaxTextRunes)
		}
		if d.NeedBytes > 0 {
			data.Needs, data.NeedNote = quantity.GiB(d.NeedBytes), "the upper end of the estimate and a margin of "+quantity.GiB(d.MarginBytes)
		}
	}
	data.Memory = s.memoryOf(ctx, story, rank)
	title := "Job " + data.Job.JobID
	if story.Job.SlurmJobID == 0 {
		title = fmt.Sprintf("Row %d", story.Job.ID)
	}
	return answer{template: "job.html", title: title, data: data}, nil
}

// memoryOf is the picture of a job, or why there is none.
func (s *Server) memoryOf(ctx context.Context, story decisionlog.Story, rank int) memory {
	drawn, err := s.drawings.of(ctx, story, rank)
	if err != nil {
		m := memory{Missing: s.whyNoPicture(story, err)}
		// Whether there was one is not worth a page that fails.
		if from, err := s.config.Log.TakenFrom(ctx, story.Job.ID); err == nil && from > 0 {
			m.Missing, m.Earlier = "The answer was taken over from an earlier job of the same kind.", fmt.Sprintf("/row/%d#memory", from)
		}
		return m
	}
	m := memory{Picture: fmt.Sprintf("/row/%d/memory.svg?gpu=%d", story.Job.ID, drawn.rank), Height: drawn.height, Subtitle: drawn.subtitle, Owners: drawn.owners, Alt: drawn.alt}
	for n := range drawn.ranks {
		if drawn.ranks > 1 {
			m.Others = append(m.Others, link{Address: fmt.Sprintf("/row/%d?gpu=%d#memory", story.Job.ID, n), Text: fmt.Sprintf("GPU %d", n), Here: n == drawn.rank})
		}
	}
	return m
}

func (s *Server) whyNoPicture(story decisionlog.Story, err error) string {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return "There is no picture: " + printable.Clip(err.Error(), 300) + "."
	case len(story.Probes) == 0 && len(story.Estimates) == 0:
		return "There is no picture: the job was not tried out."
	case !story.Job.Finished:
		return "There is no picture yet: the probe has not reported."
	case !s.config.KeepsBundles:
		return "There is no picture: records of ended jobs are not kept here (web.keep_bundles)."
	}
	if n := len(story.Probes); n > 0 && story.Probes[n-1].ReportedAt.IsZero() {
		return "There is no picture: no record came of the probe that tried the job out."
	}
	return "There is no picture: the job was tried out, but its record is no longer kept (web.keep_bundles)."
}

func (s *Server) picture(r *http.Request) (answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	story, rank, err := s.askedFor(ctx, r)
	if err != nil {
		return answer{}, err
	}
	drawn, err := s.drawings.of(ctx, story, rank)
	if err != nil {
		return answer{}, fault{http.StatusNotFound, s.whyNoPicture(story, err)}
	}
	return answer{body: drawn.svg, contentType: "image/svg+xml", policy: picturePolicy}, nil
}

// reportData is the content of the report.
type reportData struct {
	Form     form
	Span     decisionlog.Span
	From, To string
	Report   report.Report
	Outcomes []logview.Outcome
	Went     []logview.Count
	Bar      bar
	Bars     []cardBar
	List     string
}

// reportSince is the period of a report for which none is given.
const reportSince = "30d"

func (s *Server) report(r *http.Request) (answer, error) {
	fields, err := onlyFields(r, choiceFields...)
	if err != nil {
		return answer{}, err
	}
	if fields["since"] == "" && fields["until"] == "" {
		fields["since"] = reportSince
	}
	filter, err := choiceOf(fields, time.Now())
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), sumTimeout)
	defer cancel()
	span, groups, err := s.config.Sums.Groups(ctx, filter)
	if err != nil {
		return answer{}, err
	}
	truth, err := s.config.Sums.Truth(ctx, filter)
	if err != nil {
		return answer{}, err
	}
	sum := report.Make(span, groups, truth, s.config.Words())
	data := reportData{Form: newForm(fields), Span: span, Report: sum, Outcomes: logview.Outcomes(sum), Went: logview.HowItWent(truth), Bar: barOf(logview.Outcomes(sum)), Bars: cardBars(sum), List: queryOf("/", fields, "", ""),
		From: span.First.Local().Format(time.DateOnly), To: span.Last.Local().Format(time.DateOnly)}
	return answer{template: "report.html", title: "Report", data: data}, nil
}

func (s *Server) health(r *http.Request) (answer, error) {
	if _, err := onlyFields(r); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	h := s.config.Health(ctx)
	open, err := s.config.Log.List(ctx, rowsPerPage, decisionlog.Filter{Open: true})
	if err != nil {
		return answer{}, err
	}
	data := struct {
		Well    bool
		Trouble string
		Lines   []logview.StoryLine
		Open    []listRow
	}{Well: h.Trouble == nil, Lines: h.Lines}
	if h.Trouble != nil {
		data.Trouble = printable.Clip(h.Trouble.Error(), 500)
	}
	for _, l := range open {
		data.Open = append(data.Open, s.rowOf(l))
	}
	return answer{template: "health.html", title: "Health", data: data}, nil
}
