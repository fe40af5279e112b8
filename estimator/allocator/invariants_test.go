package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// check recomputes everything that the allocator keeps from its blocks alone.
func check(a *Allocator, card *Card) error {
	var reserved, allocated, active, splitBytes, splits, segments, requested int64
	free, unmapped := 0, 0
	for i := range a.blocks {
		b := &a.blocks[i]
		if !b.is(flagAlive) {
			continue
		}
		if b.size == 0 || b.size%minBlockBytes != 0 {
			return fmt.Errorf("block %#x has %d bytes", b.addr, b.size)
		}
		if b.next != none {
			n := &a.blocks[b.next]
			if !n.is(flagAlive) || n.prev != blockRef(i) || n.addr != b.addr+b.size || n.pool != b.pool || n.stream != b.stream || n.rng != b.rng || n.born != b.born {
				return fmt.Errorf("block %#x and the next one do not belong together", b.addr)
			}
			if b.idle() && n.idle() && b.is(flagMapped) == n.is(flagMapped) {
				return fmt.Errorf("two free blocks side by side at %#x", b.addr)
			}
		}
		if !b.is(flagMapped) {
			unmapped++
			continue
		}
		reserved += int64(b.size)
		if b.prev == none && b.rng < 0 {
			segments++
		}
		switch {
		case b.is(flagAllocated):
			allocated += int64(b.size)
			active += int64(b.size)
			requested += int64(b.requested)
			if b.requested > b.size {
				return fmt.Errorf("block %#x is smaller than its request", b.addr)
			}
		case !b.idle():
			active += int64(b.size)
			requested += int64(b.requested)
		default:
			free++
			if b.rng < 0 && b.split() {
				splits++
				splitBytes += int64(b.size)
			}
			set := &a.pools[b.pool].sets[b.stream].free
			c := set.lowerBound(b.key())
			if !set.valid(c) || set.at(c).block != blockRef(i) {
				return fmt.Errorf("free block %#x is not in its set", b.addr)
			}
		}
	}
	inSets, inUnmapped := 0, 0
	for _, p := range a.pools {
		for _, s := range p.sets {
			if s == nil {
				continue
			}
			inSets += s.free.count
			inUnmapped += len(s.unmapped)
			last := freeKey{}
			n := 0
			for c := (cursor{}); s.free.valid(c); c = s.free.next(c) {
				e := *s.free.at(c)
				if n > 0 && !last.less(e.freeKey) {
					return errors.New("a free set is out of order")
				}
				last = e.freeKey
				n++
			}
			if n != s.free.count {
				return errors.New("a free set has lost count")
			}
		}
	}
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"free blocks", int64(inSets), int64(free)}, {"unmapped blocks", int64(inUnmapped), int64(unmapped)},
		{"reserved", a.stats.ReservedBytes.All.Current, reserved}, {"allocated", a.stats.AllocatedBytes.All.Current, allocated},
		{"active", a.stats.ActiveBytes.All.Current, active}, {"requested", a.stats.RequestedBytes.All.Current, requested},
		{"split", a.stats.InactiveSplit.All.Current, splits}, {"split bytes", a.stats.InactiveSplitBytes.All.Current, splitBytes},
		{"segments", a.stats.Segment.All.Current, segments}, {"card", int64(card.UsedBytes()), reserved}, {"total", int64(a.totalSegments), reserved},
		{"small and large", a.stats.ReservedBytes.Small.Current + a.stats.ReservedBytes.Large.Current, reserved},
	} {
		if c.got != c.want {
			return fmt.Errorf("%s: %d, recomputed %d", c.name, c.got, c.want)
		}
	}
	return nil
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Version: rapid.SampledFrom(Differing(false)).Draw(t, "version")}
		if o.Version.AtLeast(2, 5) || !rapid.Bool().Draw(t, "plain") {
			o.Config.ExpandableSegments = rapid.Bool().Draw(t, "expandable") && o.Version.AtLeast(2, 1)
		}
		if !o.Config.ExpandableSegments && rapid.Bool().Draw(t, "max split") {
			o.Config.MaxSplitBytes = 40 << 20
		}
		if rapid.Bool().Draw(t, "gc") {
			o.Config.GCThreshold = 0.5
			o.Config.MemoryFraction = 0.8
		}
		card, err := NewCard(uint64(rapid.IntRange(40, 600).Draw(t, "MiB"))<<20, AddressPolicy(rapid.IntRange(0, 1).Draw(t, "policy")))
		if err != nil {
			t.Fatal(err)
		}
		o.Device = card
		now := int64(0)
		o.Now = func() int64 { return now }
		o.EventDone = func(at int64, _ uint64) bool { return now > at }
		a, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		var live []BlockID
		inPool := false
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 99).Draw(t, "what"); {
			case what < 40 && len(live) > 0:
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				if what < 8 {
					if err := a.RecordStream(live[i], uint64(rapid.IntRange(0, 2).Draw(t, "used on"))); err != nil {
						t.Fatal(err)
					}
				}
				if err := a.Free(live[i]); err != nil {
					t.Fatal(err)
				}
				if err := a.Free(live[i]); !errors.Is(err, ErrNotLive) {
					t.Fatalf("freed twice: %v", err)
				}
				live = append(live[:i], live[i+1:]...)
			case what < 43:
				now++
			case what < 45 && !inPool:
				a.EmptyCache()
			case what < 48:
				if inPool {
					err = errors.Join(a.EndPool(7), a.ReleasePool(7))
				} else {
					err = a.BeginPool(7, PoolOptions{Capture: true})
				}
				if err != nil {
					t.Fatal(err)
				}
				inPool = !inPool
			default:
				bytes := uint64(rapid.SampledFrom([]int{1, 600, 1 << 20, 1<<20 + 1, 5 << 20, 10 << 20, 21 << 20, 41 << 20, 90 << 20}).Draw(t, "bytes"))
				id, addr, err := a.Malloc(bytes, uint64(rapid.IntRange(0, 2).Draw(t, "stream")))
				var oom *OOMError
				switch {
				case err == nil:
					if addr%minBlockBytes != 0 {
						t.Fatalf("address %#x", addr)
					}
					live = append(live, id)
				case !errors.As(err, &oom):
					t.Fatal(err)
				}
			}
			if err := check(a, card); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestFreeSetAgreesWithAPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set freeSet
		plain := map[freeKey]blockRef{}
		keys := func() []freeKey {
			var k []freeKey
			for c := (cursor{}); set.valid(c); c = set.next(c) {
				k = append(k, set.at(c).freeKey)
			}
			return k
		}
		entry := rapid.Custom(func(t *rapid.T) freeKey {
			return freeKey{uint64(rapid.IntRange(1, 15).Draw(t, "size")), uint64(rapid.IntRange(0, 40).Draw(t, "addr")), uint32(rapid.IntRange(0, 2).Draw(t, "born"))}
		})
		for i := range rapid.IntRange(1, 400).Draw(t, "steps") {
			e := entry.Draw(t, "entry")
			ref := blockRef(i)
			if _, in := plain[e]; in {
				switch to := entry.Draw(t, "to"); {
				case rapid.Bool().Draw(t, "remove"):
					set.take(e)
					delete(plain, e)
				case plain[to] != 0:
				default:
					f := freeEntry{to, ref + 1}
					if to.less(e) {
						set.moveDown(set.lowerBound(e), f)
					} else {
						set.replaceUp(e, f)
					}
					delete(plain, e)
					plain[to] = ref + 1
				}
			} else {
				set.insert(freeEntry{e, ref + 1})
				plain[e] = ref + 1
			}
			got := keys()
			if len(got) != len(plain) || set.count != len(plain) {
				t.Fatalf("%d entries, want %d", len(got), len(plain))
			}
			for j, k := range got {
				if plain[k] == 0 || j > 0 && cmp.Or(cmp.Compare(got[j-1].size, k.size), cmp.Compare(got[j-1].born, k.born), cmp.Compare(got[j-1].addr, k.addr)) >= 0 {
					t.Fatalf("entry %v at %d", k, j)
				}
			}
		}
	})
}
