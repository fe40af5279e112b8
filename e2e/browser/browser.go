// Package browser drives a Chromium without a window: it opens pages as a
// phone, a desktop or in the dark, and says what the browser complained of and
// what it asked for. It speaks the browser's own protocol over a pipe.
package browser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Program is what `tools/setup browser` installs.
const Program = "chromium-headless-shell"

// answerTimeout bounds one command, the loading of a page included.
const answerTimeout = 60 * time.Second

// Browser is a running Chromium.
type Browser struct {
	cmd  *exec.Cmd
	dir  string
	to   *os.File
	from *os.File
	// done is closed when nothing more comes.
	done chan struct{}

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	pages   map[string]*Page
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts one with a profile of its own. The caller must call Close.
func Start() (_ *Browser, err error) {
	b := &Browser{waiting: map[int]chan message{}, pages: map[string]*Page{}, done: make(chan struct{})}
	if b.dir, err = os.MkdirTemp("", "gresize-browser-"); err != nil {
		return nil, err
	}
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.to, b.from = to, from
	// Root has no sandbox of Chromium's; it opens the pages of this test alone.
	b.cmd = exec.Command(Program, "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--hide-scrollbars", "--font-render-hinting=none", "--user-data-dir="+b.dir)
	b.cmd.ExtraFiles = []*os.File{in, out}
	var said bytes.Buffer
	b.cmd.Stderr = &said
	err = b.cmd.Start()
	in.Close()
	out.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w (tools/setup browser installs it)", err), to.Close(), from.Close(), os.RemoveAll(b.dir))
	}
	go b.read()
	return b, nil
}

// Close ends the browser and removes what it left.
func (b *Browser) Close() error {
	err := errors.Join(b.to.Close(), b.cmd.Process.Kill())
	_ = b.cmd.Wait() // it was killed
	<-b.done
	return errors.Join(err, b.from.Close(), os.RemoveAll(b.dir))
}

func (b *Browser) read() {
	defer close(b.done)
	lines := bufio.NewReaderSize(b.from, 1<<20)
	for {
		data, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(data[:len(data)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID != 0 {
			if answer := b.waiting[m.ID]; answer != nil {
				answer <- m
				delete(b.waiting, m.ID)
			}
		} else if p := b.pages[m.SessionID]; p != nil {
			p.heard(m)
		}
		b.mu.Unlock()
	}
}

// call sends a command and reads its result.
func (b *Browser) call(session, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	b.next++
	m := message{ID: b.next, SessionID: session, Method: method, Params: text}
	b.waiting[m.ID] = answer
	text, err = json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-b.done:
		return fmt.Errorf("%s: the browser has ended: %w", method, io.ErrUnexpectedEOF)
	case <-time.After(answerTimeout):
		return fmt.Errorf("%s: no answer in %s", method, answerTimeout)
	}
}

// Page is one tab.
type Page struct {
	browser *Browser
	session string
	loaded  chan struct{}

	mu                   sync.Mutex
	complaints, requests []string
}

// Looks are how a page is shown.
type Looks struct {
	Width, Height int
	Dark          bool
	// Phone: touched, not pointed at, and with two pixels to each.
	Phone bool
}

type values map[string]any

// NewPage opens an empty tab.
func (b *Browser) NewPage(l Looks) (*Page, error) {
	var target struct {
		TargetID string `json:"targetId"`
	}
	if err := b.call("", "Target.createTarget", values{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var session struct {
		SessionID string `json:"sessionId"`
	}
	if err := b.call("", "Target.attachToTarget", values{"targetId": target.TargetID, "flatten": true}, &session); err != nil {
		return nil, err
	}
	p := &Page{browser: b, session: session.SessionID, loaded: make(chan struct{}, 1)}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	scale := 1
	if l.Phone {
		scale = 2
	}
	return p, errors.Join(
		p.call("Page.enable", values{}), p.call("Runtime.enable", values{}), p.call("Log.enable", values{}), p.call("Network.enable", values{}), p.call("Audits.enable", values{}),
		p.call("Emulation.setDeviceMetricsOverride", values{"width": l.Width, "height": l.Height, "deviceScaleFactor": scale, "mobile": l.Phone}),
		p.call("Emulation.setEmulatedMedia", values{"features": []values{{"name": "prefers-color-scheme", "value": scheme}}}),
	)
}

func (p *Page) call(method string, params any) error {
	return p.browser.call(p.session, method, params, nil)
}

// heard notes what the browser tells of the page.
func (p *Page) heard(m message) {
	var e struct {
		Type  string `json:"type"`
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Issue struct {
			Code    string          `json:"code"`
			Details json.RawMessage `json:"details"`
		} `json:"issue"`
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case "Log.entryAdded":
		p.complaints = append(p.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, m.Method+": "+string(m.Params))
	case "Audits.issueAdded":
		p.complaints = append(p.complaints, fmt.Sprintf("issue %s: %s", e.Issue.Code, e.Issue.Details))
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	}
}

// Open loads an address and waits until all of the page is there.
func (p *Page) Open(address string) error {
	select {
	case <-p.loaded:
	default:
	}
	var result struct {
		ErrorText string `json:"errorText"`
	}
	if err := p.browser.call(p.session, "Page.navigate", values{"url": address}, &result); err != nil {
		return err
	}
	if result.ErrorText != "" {
		return fmt.Errorf("open %s: %s", address, result.ErrorText)
	}
	return p.WaitLoaded()
}

// WaitLoaded waits for a page that something else has led to.
func (p *Page) WaitLoaded() error {
	select {
	case <-p.loaded:
		return nil
	case <-time.After(answerTimeout):
		return fmt.Errorf("the page is not there after %s", answerTimeout)
	}
}

// Complaints are what the browser has said of the page so far: errors of its console, what its policy has kept out, and faults that it knows of.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.complaints)
}

// Requests are the addresses that were asked for.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Evaluate runs an expression in the page and reads its value.
func (p *Page) Evaluate(expression string, value any) error {
	var result struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := p.browser.call(p.session, "Runtime.evaluate", values{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &result); err != nil {
		return err
	}
	if e := result.Exception; e != nil {
		return fmt.Errorf("evaluate: %s %s", e.Text, e.Exception.Description)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(result.Result.Value, value)
}

// Screenshot is the whole page as PNG, or its first so many pixels.
func (p *Page) Screenshot(height int) ([]byte, error) {
	var size struct {
		Content struct{ Width, Height float64 } `json:"cssContentSize"`
	}
	if err := p.browser.call(p.session, "Page.getLayoutMetrics", values{}, &size); err != nil {
		return nil, err
	}
	if height > 0 {
		size.Content.Height = min(size.Content.Height, float64(height))
	}
	var shot struct{ Data string }
	err := p.browser.call(p.session, "Page.captureScreenshot", values{"format": "png", "captureBeyondViewport": true,
		"clip": values{"x": 0, "y": 0, "width": size.Content.Width, "height": size.Content.Height, "scale": 1}}, &shot)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(shot.Data)
}
