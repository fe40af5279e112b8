// Package site ties the words of the configuration to GPU profiles: it makes
// the rules of the policy from them, and says what in the table of a site can
// never be.
package site

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/account"
	"github.com/gresize/gresize/slurm/request"
)

// Site is a configuration with the GPU profiles that it names.
type Site struct {
	Config   *config.Config
	byWord   map[string]*gpu.Profile
	fallback *gpu.Profile
	users    policy.Choice
}

// Load reads a configuration and the profiles that it names. The error names everything for which it cannot be used, with file and line, such as each word
// that has no profile. What is impossible in the table is returned beside the site, or beside the error: jobs are still decided, as far as the cards go.
func Load(path string) (s *Site, impossible []*config.FileError, err error) {
	c, faults := config.Examine(path)
	if c == nil {
		return nil, nil, faults
	}
	s, unknown := New(c)
	if len(unknown) == 0 { // of all the others it is not known which card they are
		impossible = s.impossible()
		config.Place(path, impossible)
	}
	if faults = faults.And(path, unknown); len(faults) > 0 {
		return nil, impossible, faults
	}
	return s, impossible, nil
}

// New loads every profile that the configuration names. The faults have a field and no place in a file; with one of them the site is not usable.
func New(c *config.Config) (*Site, []*config.FileError) {
	s := &Site{Config: c, byWord: map[string]*gpu.Profile{}}
	var unknown []*config.FileError
	profile := func(field, name string) *gpu.Profile {
		p, err := gpu.Load(name)
		if err != nil {
			unknown = append(unknown, &config.FileError{Field: field, Problem: err.Error(), Hint: "`gresize gpu list` shows the profiles"})
		}
		return p
	}
	s.fallback = profile("default_profile", c.DefaultProfile)
	for _, word := range slices.Sorted(maps.Keys(c.GPU)) {
		if p := profile("gpu."+word+".profile", c.GPU[word].Profile); p != nil {
			s.byWord[word] = p
		}
	}
	s.users = policy.Choice{Only: userNumbers("jobs.users", c.Jobs.Users, &unknown), Except: userNumbers("jobs.except_users", c.Jobs.ExceptUsers, &unknown)}
	return s, unknown
}

// userNumbers looks users up: a job knows its owner by the number.
func userNumbers(field string, names []string, unknown *[]*config.FileError) (numbers []string) {
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			numbers = append(numbers, name)
			continue
		}
		u, err := account.ByName(name)
		switch {
		case err == nil:
			numbers = append(numbers, strconv.FormatUint(uint64(u.UID), 10))
		case errors.Is(err, account.ErrUnknown):
			*unknown = append(*unknown, &config.FileError{Field: field, Problem: fmt.Sprintf("there is no user %q", name), Hint: "a name that `getent passwd` knows, or a number"})
		default:
			*unknown = append(*unknown, &config.FileError{Field: field, Problem: fmt.Sprintf("user %q cannot be looked up: %v", name, err), Hint: "give the number, which needs no look-up"})
			return numbers // the others would wait as long
		}
	}
	return numbers
}

// scope is which jobs the site lets be changed.
func (s *Site) scope() policy.Scope {
	j := s.Config.Jobs
	return policy.Scope{Partitions: policy.Choice{Only: j.Partitions, Except: j.ExceptPartitions}, Accounts: policy.Choice{Only: j.Accounts, Except: j.ExceptAccounts},
		QOS: policy.Choice{Only: j.QOS, Except: j.ExceptQOS}, Users: s.users}
}

// impossible lists every row of the table that no card can be.
func (s *Site) impossible() (faults []*config.FileError) {
	c := s.Config
	seen := map[request.Target]int{}
	for i, t := range c.Targets {
		at := func(name, hint, format string, args ...any) {
			faults = append(faults, &config.FileError{Field: fmt.Sprintf("target[%d].%s", i, name), Problem: fmt.Sprintf(format, args...), Hint: hint})
		}
		where := "constraint"
		if t.Gres != "" {
			where = "gres"
		}
		target := request.Target{Gres: t.Gres, Constraint: t.Constraint}
		if first, twice := seen[target]; twice {
			at(where, "keep one of them", "the row asks for the same as row %d of the table, so it is never chosen", first+1)
		} else {
			seen[target] = i
		}
		names, alternatives := s.cardsOf(t)
		if !alternatives && len(names) > 1 && names[0].profile.ID != names[1].profile.ID {
			at(where, "a node has one of them: leave one out, or write |", "%s is a %s and %s is a %s: no card is both", names[0].word, names[0].profile.ID, names[1].word, names[1].profile.ID)
			continue
		}
		for _, n := range names {
			// Cards are sold by rounder numbers than they show: 12 GB is 11.6 GiB.
			if have := n.profile.Total.Bytes; int64(t.Fits) > have+have/8 {
				at("fits", fmt.Sprintf("at most %s", config.Bytes(have)), "no job of %s fits: the row's %s is a %s, which has %s", t.Fits, n.word, n.profile.ID, config.Bytes(have))
				break
			}
		}
		for _, word := range wordsOf(t) {
			if m := sliceName.FindStringSubmatch(word); m != nil {
				if gigabytes, err := strconv.ParseInt(m[1], 10, 32); err == nil && int64(t.Fits) > gigabytes<<30 {
					at("fits", fmt.Sprintf("at most %dGiB", gigabytes), "no job of %s fits: %s is a slice of %d GB", t.Fits, word, gigabytes)
				}
			}
		}
	}
	if largest := s.largest(); c.Shard.Per > 0 && largest > 0 && int64(c.Shard.Per) > largest {
		faults = append(faults, &config.FileError{Field: "shard.per", Problem: fmt.Sprintf("one shard is %s, and no card has more than %s", c.Shard.Per, config.Bytes(largest)), Hint: "what one shard of a card stands for, for example \"1GiB\""})
	} else if c.Shard.Per > 0 && c.Shard.Max > 1 && largest > 0 && int64(c.Shard.Max)*int64(c.Shard.Per) > largest+largest/8 {
		faults = append(faults, &config.FileError{Field: "shard.max", Problem: fmt.Sprintf("%d shards of %s are more than the %s of the largest card", c.Shard.Max, c.Shard.Per, config.Bytes(largest)),
			Hint: fmt.Sprintf("at most %d", largest/int64(c.Shard.Per))})
	}
	if largest := s.largest(); c.Counted.Max > 0 && largest > 0 && int64(c.Counted.Per) > (largest+largest/8)/c.Counted.Max {
		faults = append(faults, &config.FileError{Field: "vram.max", Problem: fmt.Sprintf("%d of %s are more than the %s of the largest card", c.Counted.Max, c.Counted.Per, config.Bytes(largest)),
			Hint: fmt.Sprintf("at most %d", largest/int64(c.Counted.Per))})
	}
	return faults
}

// largest is the memory of the largest card that a word of the site is tied to; 0: none is.
func (s *Site) largest() int64 {
	var bytes int64
	for _, p := range s.byWord {
		bytes = max(bytes, p.Total.Bytes)
	}
	return bytes
}

type namedCard struct {
	word    string
	profile *gpu.Profile
}

// cardsOf are the cards that a row's words are tied to. alternatives says that the words of the constraint are joined by |.
func (s *Site) cardsOf(t config.Target) (cards []namedCard, alternatives bool) {
	_, alternatives, _ = request.FeatureTerms(t.Constraint)
	for _, word := range wordsOf(t) {
		if p, ok := s.byWord[word]; ok {
			cards = append(cards, namedCard{word, p})
		}
	}
	slices.SortStableFunc(cards, func(a, b namedCard) int { return cmp.Compare(a.profile.ID, b.profile.ID) })
	// Two that differ stand first.
	for i := range cards {
		if cards[i].profile.ID != cards[0].profile.ID {
			cards[1], cards[i] = cards[i], cards[1]
			break
		}
	}
	return cards, alternatives
}

// wordsOf are the features and the GPU type of a row.
func wordsOf(t config.Target) []string {
	words, _, _ := request.FeatureTerms(t.Constraint)
	for _, e := range request.ParseList(t.Gres) {
		words = append(words, e.Type)
	}
	return words
}

// ProfileOf is the profile on which a request is probed: that of its GPU type, or of one of its features, or the default.
func (s *Site) ProfileOf(asked request.Request) string {
	for _, ask := range asked.Asks() {
		if p, ok := s.byWord[ask.Type]; ok {
			return p.ID
		}
	}
	terms, _, _ := request.FeatureTerms(asked.Features)
	for _, term := range terms {
		if p, ok := s.byWord[term]; ok {
			return p.ID
		}
	}
	return s.fallback.ID
}

// card is what a row holds and the profile of its card. It holds what the file says, and never more than the cards have that its words are
// tied to: a card that is sold as 12 GB shows less. The profile is empty when the words name no card, or different ones.
func (s *Site) card(t config.Target) (fitsBytes int64, profile string) {
	fitsBytes = int64(t.Fits)
	several := false
	for _, word := range wordsOf(t) {
		if p, ok := s.byWord[word]; ok {
			fitsBytes = min(fitsBytes, p.Total.Bytes)
			several = several || profile != "" && profile != p.ID
			profile = p.ID
		}
	}
	if several {
		profile = ""
	}
	return fitsBytes, profile
}

// slice says whether a row gives a part of a card.
func (s *Site) slice(t config.Target) bool {
	return slices.ContainsFunc(wordsOf(t), func(word string) bool {
		p, ok := s.byWord[word]
		return ok && p.MIG != nil || sliceName.MatchString(word)
	})
}

// sliceName is what Slurm's own detection names a MIG device, whatever the card: a100_3g.20gb.
var sliceName = regexp.MustCompile(`(?:^|[-_])[1-7]g\.([0-9]+)gb`)

// Rules are the policy of the site.
func (s *Site) Rules() policy.Rules {
	c := s.Config
	r := policy.Rules{Scope: s.scope(), MarginPercent: c.Policy.MarginPercent, MarginMinBytes: int64(c.Policy.MarginMin), FloorPercent: c.Margin.FloorPercent, FloorMinBytes: int64(c.Margin.FloorMin), Upsizing: c.Policy.Upsizing,
		Counted:    policy.Counted{Name: c.Counted.Gres, UnitBytes: int64(c.Counted.Per), Max: c.Counted.Max},
		Host:       policy.Host{Lower: c.Host.LowerMem, MarginPercent: c.Host.MarginPercent, MarginMinBytes: int64(c.Host.MarginMin), FloorBytes: int64(c.Host.Floor)},
		Swap:       policy.Swap{Allow: c.Swap.Allow, Slowdown: c.Swap.Slowdown},
		ShardBytes: int64(c.Shard.Per), ShardMax: c.Shard.Max, Own: c.OwnFeatures(), Cards: map[string]policy.Card{}}
	for _, level := range c.Policy.ActOn {
		r.ActOn = append(r.ActOn, estimator.Confidence(level))
	}
	for _, t := range c.Targets {
		fits, profile := s.card(t)
		r.Rows = append(r.Rows, policy.Row{FitsBytes: fits, Profile: profile, Slice: s.slice(t), Target: request.Target{Gres: t.Gres, Constraint: t.Constraint}})
	}
	// A card that holds less than the file says may come before one that the file puts first.
	slices.SortStableFunc(r.Rows, func(a, b policy.Row) int { return cmp.Compare(a.FitsBytes, b.FitsBytes) })
	for word, p := range s.byWord {
		r.Cards[word] = policy.Card{Profile: p.ID, CapacityBytes: p.Total.Bytes}
	}
	return r
}
