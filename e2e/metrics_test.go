package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/gresize/gresize/e2e/site"
)

// counted reads the site's counters as Prometheus does and sums those whose line matches.
func counted(t *testing.T, s *site.Site, pattern string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.MetricsPath())
	}}}
	response, err := client.Get("http://gresized/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^"+pattern+` ([0-9]+)$`).FindAllSubmatch(page, -1)
	if found == nil {
		t.Errorf("no counter matches %s in\n%s", pattern, page)
	}
	sum := 0
	for _, f := range found {
		n, err := strconv.Atoi(string(f[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
