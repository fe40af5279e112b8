// Package offload plans which of the tensors that autograd keeps for the backward pass go to host memory and come back, so that an unmodified program runs on
// a smaller card, and says how well. The Python layer gresize_offload carries a plan out in the job; it needs nothing of the virtual GPU.
package offload

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gresize/gresize/estimator/analysis/planning"
	"github.com/gresize/gresize/estimator/trace"
)

// ErrInvalid wraps every fault of what a process recorded.
var ErrInvalid = errors.New("invalid record of saved tensors")

const (
	maxEvents = 1 << 20
	maxCalls  = 1 << 20
	maxBytes  = 1 << 48
)

// event is a call of one of autograd's two hooks.
type event struct {
	at      planning.Place
	take    bool
	ordinal int
	// Of a save: what names the tensor and all before it, and its storage.
	prefix  uint32
	address uint64
	bytes   uint64
	// Of a take: the iteration in which the tensor was saved.
	of int64
	// calls is how many operators of the step that was looked at had been called; -1 in other steps.
	calls int
}

// iteration is what lies between two beginnings: a forward and a backward pass.
type iteration struct {
	number   int64
	from, to planning.Place
	// whole: another iteration followed, or the run's end is known to lie after it.
	whole  bool
	events []event
	// alone is, by the tensor that a storage was saved with first, the first event at which autograd alone held it.
	alone map[int]int
	// calls is how many operators of the step that was looked at had been called before and after; -1 in other steps.
	callsFrom, callsTo int
	// updates is where an optimizer's step begins; nil where none does before the next iteration.
	updates *planning.Place
}

// stateTensor is a tensor of the optimizer's state after its last step.
type stateTensor struct{ address, bytes uint64 }

// Carried is what a process did with a plan.
type Carried struct {
	Iterations int64 `json:"iterations"`
	// Followed is how many iterations were those of the plan to their last saved tensor.
	Followed   int64 `json:"followed"`
	Moves      int64 `json:"moves"`
	StateMoves int64 `json:"state_moves"`
	MovedBytes int64 `json:"moved_bytes"`
	// NoRoom counts storages that stayed since the host had no room, Late those that were wanted before they were on their way, Revived those that
	// somebody else had kept on the card.
	NoRoom    int64 `json:"no_room"`
	Late      int64 `json:"late"`
	Revived   int64 `json:"revived"`
	HostBytes int64 `json:"host_bytes"`
	// RegionBytes is what was taken for regions before the program took any.
	RegionBytes int64 `json:"region_bytes"`
}

// saved is what one process recorded.
type saved struct {
	iterations []*iteration
	carried    *Carried
	// state is that of the one optimizer; empty where there are more.
	state []stateTensor
	// optimizers is how many made steps.
	optimizers int
}

// line is every form that a line may have.
type line struct {
	Version *int           `json:"saved"`
	Lost    int64          `json:"lost"`
	Begin   *int64         `json:"begin"`
	Save    *int           `json:"save"`
	Take    *int           `json:"take"`
	Alone   *int           `json:"alone"`
	Calls   *int           `json:"calls"`
	Of      int64          `json:"of"`
	At      planning.Place `json:"at"`
	Prefix  uint32         `json:"prefix"`
	Address uint64         `json:"address"`
	Bytes   uint64         `json:"bytes"`
	Carried *Carried       `json:"carried_out"`
	// Updates is the iteration in which an optimizer's step begins, State what it keeps after one: address and bytes.
	Updates *int64       `json:"updates"`
	State   *[][2]uint64 `json:"state"`
	// Optimizers is how many have made steps until then.
	Optimizers int `json:"optimizers"`
}

// readSaved reads the part PartSaved of a rank. An error names the line.
func readSaved(data []byte) (*saved, error) {
	s := &saved{}
	headed, events := false, 0
	for number, text := range trace.Lines(data) {
		var l line
		err := json.Unmarshal(text, &l)
		switch {
		case err != nil:
		case !headed:
			if headed = true; l.Version == nil || *l.Version != 1 {
				err = errors.New("saved: version 1 is wanted")
			} else if l.Lost != 0 {
				err = fmt.Errorf("lost: there was no room for %d events", l.Lost)
			}
		default:
			if events++; events > maxEvents {
				err = fmt.Errorf("more than %d events", maxEvents)
				break
			}
			err = s.add(&l)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrInvalid, number, err)
		}
	}
	if !headed {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	return s, nil
}

func (s *saved) add(l *line) error {
	if l.At[0] < 0 || l.At[1] < 0 || l.At[0] > maxBytes || l.At[1] > l.At[0] {
		return fmt.Errorf("at: %v is impossible", l.At)
	}
	var last *iteration
	if n := len(s.iterations); n > 0 {
		last = s.iterations[n-1]
		if before := last.to; l.Carried == nil && (l.At[0] < before[0] || l.At[1] < before[1]) {
			return fmt.Errorf("at: %v comes before %v", l.At, before)
		}
	}
	calls := -1
	if l.Calls != nil {
		if calls = *l.Calls; calls < 0 || calls > maxCalls {
			return fmt.Errorf("calls: %d is impossible", calls)
		}
	}
	switch {
	case l.Carried != nil:
		s.carried = l.Carried
		return nil
	case l.Begin != nil:
		if last != nil {
			last.to, last.whole, last.callsTo = l.At, true, calls
		}
		s.iterations = append(s.iterations, &iteration{number: *l.Begin, from: l.At, to: l.At, alone: map[int]int{}, callsFrom: calls, callsTo: calls})
		return nil
	case last == nil:
		return nil // a newer recorder may say more
	}
	last.to, last.callsTo = l.At, calls
	e := event{at: l.At, calls: calls}
	switch {
	case l.Save != nil:
		if l.Address == 0 && l.Bytes > 0 || l.Bytes > maxBytes {
			return fmt.Errorf("%d bytes at %#x are impossible", l.Bytes, l.Address)
		}
		e.ordinal, e.prefix, e.address, e.bytes = *l.Save, l.Prefix, l.Address, l.Bytes
		if want := last.saves(); e.ordinal != want {
			return fmt.Errorf("save: tensor %d where %d is the next", e.ordinal, want)
		}
	case l.Take != nil:
		e.take, e.ordinal, e.of = true, *l.Take, l.Of
	case l.Alone != nil:
		if *l.Alone >= 0 && *l.Alone < last.saves() {
			last.alone[*l.Alone] = len(last.events)
		}
		return nil
	case l.Updates != nil:
		last.updates = &l.At
		return nil
	case l.State != nil:
		if len(*l.State) > maxTensors {
			return fmt.Errorf("state: %d tensors", len(*l.State))
		}
		s.state, s.optimizers = s.state[:0], max(l.Optimizers, 0)
		for _, t := range *l.State {
			if t[0] == 0 || t[1] == 0 || t[1] > maxBytes {
				return fmt.Errorf("state: %d bytes at %#x are impossible", t[1], t[0])
			}
			s.state = append(s.state, stateTensor{t[0], t[1]})
		}
		return nil
	default:
		return nil
	}
	last.events = append(last.events, e)
	return nil
}

// saves is how many tensors were saved so far.
func (it *iteration) saves() int {
	for i := len(it.events) - 1; i >= 0; i-- {
		if !it.events[i].take {
			return it.events[i].ordinal + 1
		}
	}
	return 0
}

// last is the name of the whole sequence of saved tensors.
func (it *iteration) last() uint32 {
	for i := len(it.events) - 1; i >= 0; i-- {
		if !it.events[i].take {
			return it.events[i].prefix
		}
	}
	return 0
}

// prefixes are the names of all saved tensors.
func (it *iteration) prefixes() (names []uint32) {
	for _, e := range it.events {
		if !e.take {
			names = append(names, e.prefix)
		}
	}
	return names
}
