package metrics

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDashboardIsSound holds contrib/grafana to what Grafana wants of a dashboard: panels that do not lie on each other, one source that the site chooses, an
// explanation of each. That each of its questions has an answer is tested with a real Prometheus, in e2e.
func TestDashboardIsSound(t *testing.T) {
	text, err := os.ReadFile("../../contrib/grafana/gresize.json")
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ X, Y, W, H int }
	type source struct{ Type, UID string }
	var d struct {
		Title, UID string
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			ID                       int
			Title, Type, Description string
			Datasource               source
			GridPos                  place
			Targets                  []struct {
				RefID, Expr, LegendFormat string
				Datasource                source
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID != "gresize" || len(d.Templating.List) != 1 || d.Templating.List[0].Name != "datasource" || d.Templating.List[0].Type != "datasource" || len(d.Panels) < 10 {
		t.Fatalf("%+v", d)
	}
	wanted := source{"prometheus", "${datasource}"}
	taken := map[[2]int]string{}
	var ids []int
	for _, p := range d.Panels {
		if p.Title == "" || p.Description == "" || !slices.Contains([]string{"stat", "timeseries"}, p.Type) || p.Datasource != wanted || len(p.Targets) == 0 || slices.Contains(ids, p.ID) {
			t.Errorf("%+v", p)
		}
		ids = append(ids, p.ID)
		var names []string
		for _, target := range p.Targets {
			if target.Expr == "" || target.LegendFormat == "" || target.Datasource != wanted || slices.Contains(names, target.RefID) {
				t.Errorf("%s: %+v", p.Title, target)
			}
			// A counter that is shown as it is says nothing after the next start.
			if strings.Contains(target.Expr, "_total") && !strings.Contains(target.Expr, "increase(") && !strings.Contains(target.Expr, "rate(") {
				t.Errorf("%s: %s", p.Title, target.Expr)
			}
			names = append(names, target.RefID)
		}
		if p.GridPos.X < 0 || p.GridPos.W < 3 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s lies at %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
