package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/browser"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// looks are those in which each page is seen.
var looks = map[string]browser.Looks{
	"desktop": {Width: 1360, Height: 900},
	"phone":   {Width: 360, Height: 740, Phone: true},
	"dark":    {Width: 1360, Height: 900, Dark: true},
}

// faults finds in a page what keeps people from reading it, and returns it as a list of texts: text of too little contrast, what has no label or no other
// text, headings out of their order, and content that is wider than the window.
const faults = `(() => {
	const found = [], colour = text => (text.match(/[\d.]+/g) || []).map(Number);
	const light = c => { const f = c.slice(0, 3).map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
	const ground = e => { for (; e; e = e.parentElement) { const c = colour(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0.99) return c; } return [255, 255, 255]; };
	const ratio = (a, b) => { const x = light(a), y = light(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
	let seen = 0;
	for (const e of document.body.querySelectorAll('*')) {
		const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join('');
		const box = e.getBoundingClientRect();
		if (box.right > innerWidth + 1 && box.width > 0 && !e.closest('.wide') && getComputedStyle(e).position !== 'absolute') found.push('wider than the window: ' + e.outerHTML.slice(0, 120));
		if (!text && !/^(INPUT|SELECT)$/.test(e.tagName)) continue;
		seen++;
		const r = ratio(colour(getComputedStyle(e).color), ground(e));
		if (r < 4.5) found.push('contrast ' + r.toFixed(2) + ': ' + (text || e.outerHTML).slice(0, 80));
	}
	for (const e of document.querySelectorAll('input, select')) {
		if (!e.labels.length) found.push('no label: ' + e.outerHTML);
		const r = ratio(colour(getComputedStyle(e, '::placeholder').color), ground(e));
		if (r < 4.5) found.push('contrast of a placeholder ' + r.toFixed(2));
		if (e.getBoundingClientRect().height < 32) found.push('too low to be touched: ' + e.outerHTML);
	}
	for (const e of document.querySelectorAll('img')) if (!e.alt) found.push('no other text: ' + e.outerHTML);
	for (const e of document.querySelectorAll('a')) if (!e.textContent.trim() && !e.querySelector('img[alt]')) found.push('a link without words: ' + e.outerHTML);
	for (const e of document.querySelectorAll('table')) if (!e.querySelector('th[scope]')) found.push('a table without headings');
	let level = 0;
	for (const e of document.querySelectorAll('h1, h2, h3, h4')) { const n = +e.tagName[1]; if (n > level + 1) found.push('a heading out of order: ' + e.textContent); level = n; }
	if (document.querySelectorAll('h1').length !== 1) found.push('not one title');
	if (!document.documentElement.lang) found.push('no language');
	if (document.scrollingElement.scrollWidth > innerWidth + 1) found.push('the page scrolls sideways: ' + document.scrollingElement.scrollWidth);
	if (document.querySelector('script, [onerror], [onclick], iframe, object, main [style]')) found.push('markup that is none of ours');
	if (seen < 10) found.push('hardly anything to read');
	return found;
})()`

// records are what probes report where a folder of real ones is given, and otherwise the small one that the page is tested with.
func records(t *testing.T) fakeAnswer {
	t.Helper()
	folder := os.Getenv("GRESIZE_PAGE_RECORDS")
	if folder == "" {
		folder = filepath.Join("..", "daemon", "web", "testdata")
	}
	a := fakeAnswer{Bundles: map[string][]byte{}}
	for _, card := range []string{"a100-80", "rtx3060"} {
		data, err := os.ReadFile(filepath.Join(folder, card+".gresize"))
		must(t, err)
		a.Bundles[card] = data
	}
	return a
}

// TestPageInABrowser reads the decisions of a real gresized in a real browser: about real jobs, one of them with the worst name that sbatch takes. With
// GRESIZE_PICTURES=FOLDER what was seen is kept there.
func TestPageInABrowser(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" && os.Getenv("GRESIZE_PICTURES") == "" {
		t.Skip("run by make nightly: the browser is installed for make nightly; daemon/web holds every page to its golden file")
	}
	address := freeAddress(t)
	s := newFakeSiteOf(t, site.Options{Cluster: minicluster.Default(), Mode: "enforce", Hold: time.Minute, Config: fmt.Sprintf("[web]\nlisten = %q\n", address)})
	s.answer(records(t))
	const worst = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"\u202eexe.gpj \u05e9\u05dc\u05d5\u05dd"
	var ids []string
	for _, args := range [][]string{{"--job-name=train-gpt"}, {"--job-name=" + worst}, {"--job-name=finetune", "--comment=gresize:off"}, {"--job-name=sweep", "--exclusive"}} {
		ids = append(ids, s.submit(append(append([]string{}, tooLarge...), args...)...))
	}
	for _, id := range ids[:2] {
		s.finished(id, 2*time.Minute)
	}
	s.answer(says(t, 7, estimator.Unknown))
	unknown := s.submit(append([]string{"--job-name=explore"}, tooLarge...)...)
	s.finished(unknown, time.Minute)
	s.answer(fakeAnswer{DelaySeconds: 50, Bundles: says(t, 7, estimator.Exact).Bundles})
	s.submit(append([]string{"--job-name=resnet50"}, tooLarge...)...)
	rows := map[string]int64{}
	for _, l := range s.lines() {
		rows[l.Job.Name] = l.Job.ID
	}

	b, err := browser.Start()
	must(t, err)
	defer func() { must(t, b.Close()) }()
	origin := "http://" + address
	for name, look := range looks {
		p, err := b.NewPage(look)
		must(t, err)
		for _, page := range []struct{ name, path string }{
			{"list", "/"}, {"job", fmt.Sprintf("/row/%d", rows["train-gpt"])}, {"hostile", fmt.Sprintf("/row/%d", rows[worst])}, {"report", "/report"}, {"health", "/health"},
		} {
			must(t, p.Open(origin+page.path))
			var found []string
			must(t, p.Evaluate(faults, &found))
			for _, fault := range found {
				t.Errorf("%s, %s: %s", page.name, name, fault)
			}
			if page.name == "job" {
				var size [2]int
				must(t, p.Evaluate(`(async () => { const i = document.querySelector('.wide img'); await i.decode(); return [i.naturalWidth, i.naturalHeight]; })()`, &size))
				if size[0] < 1000 || size[1] < 500 {
					t.Errorf("the picture is %v pixels", size)
				}
			}
			picture(t, p, "page-"+page.name+"-"+name)
		}
		// The form leads to what it says, without a script.
		must(t, p.Open(origin+"/"))
		must(t, p.Evaluate(`{ const f = document.forms[0]; f.elements.verdict.value = 'rewrite'; f.querySelector('button').click(); }`, nil))
		must(t, p.WaitLoaded())
		var shown struct {
			Rows  int
			Place string
		}
		must(t, p.Evaluate(`({ rows: document.querySelectorAll('tbody tr').length, place: location.pathname + location.search })`, &shown))
		if shown.Rows != 2 || !strings.Contains(shown.Place, "verdict=rewrite") {
			t.Errorf("%s: the form leads to %+v", name, shown)
		}
		for _, said := range p.Complaints() {
			t.Errorf("%s: the browser complains: %s", name, said)
		}
		for _, asked := range p.Requests() {
			if !strings.HasPrefix(asked, origin+"/") {
				t.Errorf("%s: %s is asked for", name, asked)
			}
		}
	}

	// What the policy is there for: a script that got into the page, however it did, does not run.
	p, err := b.NewPage(looks["desktop"])
	must(t, err)
	must(t, p.Open(origin+"/"))
	var ran bool
	must(t, p.Evaluate(`(async () => { const e = document.createElement('div'); e.innerHTML = '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" onerror="window.ran = true" onload="window.ran = true">'; document.body.append(e);
		const s = document.createElement('script'); s.textContent = 'window.ran = true'; document.body.append(s); await new Promise(done => setTimeout(done, 300)); return !!window.ran; })()`, &ran))
	if said, _ := json.Marshal(p.Complaints()); ran || !strings.Contains(string(said), "Content Security Policy") {
		t.Errorf("a script in the page ran: %t; the browser said %s", ran, said)
	}
}

// picture keeps what is seen, where a folder for it is given.
func picture(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	folder := os.Getenv("GRESIZE_PICTURES")
	if folder == "" {
		return
	}
	png, err := p.Screenshot(2400)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644))
}
