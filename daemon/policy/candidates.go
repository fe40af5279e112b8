package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gresize/gresize/slurm/request"
)

// Counted is a count-only resource of the nodes that stands for GPU memory, as in --gres=gpu:1,vram:23. Slurm counts it for a node, not for a card.
type Counted struct {
	// Name is what Slurm calls it; empty: there is none.
	Name string
	// UnitBytes is what one of it stands for. Max is the most that one GPU has, 0: not bounded.
	UnitBytes int64
	Max       int64
}

// target is the resource that holds the need on each of a number of GPUs, and what it holds on one.
func (c Counted) target(needBytes int64, gpus int) (counted string, fitsBytes int64, ok bool) {
	if c.Name == "" || c.UnitBytes <= 0 {
		return "", 0, false
	}
	units := (needBytes + c.UnitBytes - 1) / c.UnitBytes
	if units < 1 || c.Max > 0 && units > c.Max {
		return "", 0, false
	}
	return fmt.Sprintf("%s:%d", c.Name, units*int64(gpus)), units * c.UnitBytes, true
}

// asked is the GPU memory that a request names in this resource, for each of its GPUs.
func (c Counted) asked(r request.Request, gpus int) (bytes int64, there bool) {
	if c.Name == "" {
		return 0, false
	}
	for _, e := range request.ParseList(r.TresPerNode) {
		if strings.EqualFold(e.Name, c.Name) {
			if e.Count > uint64(maxBytes/c.UnitBytes) {
				return maxBytes, true
			}
			return int64(e.Count) * c.UnitBytes / int64(gpus), true
		}
	}
	return 0, false
}

// maxBytes is above any card; it keeps sums from overflowing.
const maxBytes = int64(1) << 50

// candidates are the rows that hold the need, smallest first; a share of a GPU comes before a whole one of the same size. A request that already counts
// GPU memory keeps doing so, in the new number: the old one would hold it on the large nodes.
func (r Rules) candidates(needBytes int64, asked request.Request, gpus int, specific bool) []Row {
	var rows []Row
	if r.ShardBytes > 0 {
		shards := (needBytes + r.ShardBytes - 1) / r.ShardBytes
		if shards > 0 && (r.ShardMax == 0 || shards <= int64(r.ShardMax)) {
			rows = append(rows, Row{FitsBytes: shards * r.ShardBytes, Target: request.Target{Shards: uint64(shards)}})
		}
	}
	if sharesCard(asked) {
		return rows
	}
	_, counts := r.Counted.asked(asked, gpus)
	counted, countedBytes, ok := r.Counted.target(needBytes, gpus)
	if ok && (!specific || counts && !r.named(asked)) {
		rows = append(rows, Row{FitsBytes: countedBytes, Target: request.Target{Counted: counted}})
	}
	for _, row := range r.Rows {
		if row.FitsBytes < needBytes {
			continue
		}
		if counts {
			row.Target.Counted = counted
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.FitsBytes, b.FitsBytes) })
	return rows
}

// sharesCard says whether a request is for shards: it stays on shared cards, with more or fewer of them.
func sharesCard(asked request.Request) bool {
	asks := asked.Asks()
	return len(asks) == 1 && asks[0].Name == "shard"
}

// named says whether a request names a card by its type or by a feature that has a size; a count alone would leave it there.
func (r Rules) named(asked request.Request) bool {
	for _, ask := range asked.Asks() {
		if ask.Type != "" {
			return true
		}
	}
	groups, _ := request.Conjuncts(asked.Features)
	return slices.ContainsFunc(groups, func(group []string) bool { _, sized := r.groupBytes(group); return sized })
}

// askedBytes is the memory of the largest card that the request allows. specific is false when it allows every card. The constraint has to be plain.
func (r Rules) askedBytes(asked request.Request, gpus int) (bytes int64, specific, known bool) {
	if sharesCard(asked) {
		count := asked.Asks()[0].Count
		if r.ShardBytes <= 0 || count > uint64(maxBytes/r.ShardBytes) {
			return 0, true, false
		}
		return int64(count) * r.ShardBytes, true, true
	}
	counted, counts := r.Counted.asked(asked, gpus)
	for _, ask := range asked.Asks() {
		if ask.Type == "" {
			continue
		}
		bytes, known = r.sizeOf(func(t request.Target) bool {
			if t.Gres == "" {
				return false
			}
			list := request.ParseList(t.Gres)
			return len(list) == 1 && strings.EqualFold(list[0].Type, ask.Type)
		}, ask.Type)
		if known && counts {
			bytes = min(bytes, counted)
		}
		return bytes, true, known
	}
	if counts {
		bytes, specific = counted, true
	}
	groups, _ := request.Conjuncts(asked.Features)
	for _, group := range groups {
		// A node has one word of the group: the largest of them bounds the card, if all of them are cards.
		if size, ok := r.groupBytes(group); ok && (!specific || size < bytes) {
			bytes, specific = size, true
		}
	}
	if specific {
		return bytes, true, true
	}
	for _, row := range r.Rows {
		bytes = max(bytes, row.FitsBytes)
	}
	for _, card := range r.Cards {
		bytes = max(bytes, card.CapacityBytes)
	}
	bytes = max(bytes, r.ShardBytes*int64(r.ShardMax))
	if bytes == 0 && r.Counted.Name != "" {
		bytes = maxBytes
	}
	return bytes, false, bytes > 0
}

func (r Rules) groupBytes(group []string) (bytes int64, known bool) {
	for _, word := range group {
		size, ok := r.sizeOf(func(t request.Target) bool {
			if !strings.Contains(t.Constraint, word) {
				return false
			}
			words, _, _ := request.FeatureTerms(t.Constraint)
			return slices.Contains(words, word)
		}, word)
		if !ok {
			return 0, false
		}
		bytes = max(bytes, size)
	}
	return bytes, len(group) > 0
}
