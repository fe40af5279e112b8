package policy

import (
	"strings"
	"testing"
)

func TestScope(t *testing.T) {
	only := func(names ...string) Choice { return Choice{Only: names} }
	except := func(names ...string) Choice { return Choice{Except: names} }
	for _, c := range []struct {
		name     string
		scope    Scope
		who      Who
		complete bool
		says     string
	}{
		{"no choice", Scope{}, Who{Partition: "gpu", UID: 7}, true, ""},
		{"a partition that is named", Scope{Partitions: only("gpu")}, Who{Partition: "gpu"}, true, ""},
		{"another partition", Scope{Partitions: only("gpu")}, Who{Partition: "debug"}, true, `the partition "debug" is not among`},
		{"an excluded partition", Scope{Partitions: except("debug")}, Who{Partition: "debug"}, true, `excluded the partition "debug"`},
		{"named and excluded", Scope{Partitions: Choice{Only: []string{"gpu"}, Except: []string{"gpu"}}}, Who{Partition: "gpu"}, true, "excluded"},
		{"one of several partitions is excluded", Scope{Partitions: except("debug")}, Who{Partition: "gpu,debug"}, true, "debug"},
		{"one of several partitions is not named", Scope{Partitions: only("gpu")}, Who{Partition: "gpu,debug"}, true, "debug"},
		{"the default partition, not known yet", Scope{Partitions: only("gpu")}, Who{}, false, ""},
		{"not known at all", Scope{Accounts: only("physics")}, Who{}, true, "its account is not known"},
		{"not known, only exclusions", Scope{QOS: except("low")}, Who{}, true, ""},
		{"account", Scope{Accounts: only("physics")}, Who{Account: "biology"}, true, "account"},
		{"QOS", Scope{QOS: except("urgent")}, Who{QOS: "urgent"}, true, "QOS"},
		{"user", Scope{Users: except("1001")}, Who{UID: 1001}, false, `excluded the user "1001"`},
		{"another user", Scope{Users: only("1002")}, Who{UID: 1001}, false, "not among"},
		{"names are told apart by case", Scope{Partitions: only("gpu")}, Who{Partition: "GPU"}, true, "not among"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.scope.Outside(c.who, c.complete)
			if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
}
