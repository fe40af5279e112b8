package wire

import (
	"maps"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLimitsEqualThePlugins reads the plugin's header: a limit that one side
// alone raises would make the other refuse what it is sent.
func TestLimitsEqualThePlugins(t *testing.T) {
	want := map[string]int{
		"PROTOCOL_VERSION":      ProtocolVersion,
		"HEADER_BYTES":          HeaderBytes,
		"FIELD_HEADER_BYTES":    FieldHeaderBytes,
		"MAX_REQUEST_BYTES":     MaxRequestBytes,
		"MAX_REPLY_BYTES":       MaxReplyBytes,
		"MAX_STRING_BYTES":      MaxStringBytes,
		"MAX_SCRIPT_BYTES":      MaxScriptBytes,
		"MAX_ENVIRONMENT_BYTES": MaxEnvironmentBytes,
		"MAX_ARGV_BYTES":        MaxArgvBytes,
		"MAX_LIST_ENTRIES":      MaxListEntries,
		"MAX_REWRITE_BYTES":     MaxRewriteBytes,
		"MAX_HOLD_SECONDS":      MaxHoldSeconds,
		"MAX_TOKEN_BYTES":       MaxTokenBytes,
		"MAX_ENV_DROP_ENTRIES":  MaxEnvDropEntries,
		"MAX_ENV_NAME_BYTES":    MaxEnvNameBytes,
	}
	header, err := os.ReadFile("../plugin/limits.h")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, match := range regexp.MustCompile(`(?m)^#define GRESIZE_(\w+) (.*)$`).FindAllStringSubmatch(string(header), -1) {
		value, err := strconv.Atoi(match[2])
		if err != nil {
			t.Errorf("limits.h: GRESIZE_%s is %q, not a plain number", match[1], match[2])
		}
		got[match[1]] = value
	}
	maps.DeleteFunc(got, func(name string, _ int) bool { return len(name) > 6 && name[:6] == "LOCAL_" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits.go and plugin/limits.h differ (-go +c):\n%s", diff)
	}
}

// TestLargestReplyFits keeps the limits consistent among themselves: a reply
// with every field at its limit must not be refused for its sum.
func TestLargestReplyFits(t *testing.T) {
	largest := 0
	for _, f := range new(Reply).fields() {
		largest += FieldHeaderBytes + max(f.maxBytes, 8)
	}
	if largest > MaxReplyBytes {
		t.Errorf("a reply can need %d bytes, MaxReplyBytes is %d", largest, MaxReplyBytes)
	}
}
