package fit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mark stands for the batch size in a command.
const Mark = "{}"

// batchOptions are the options that carry the batch size of a training, in the order in which they are looked for.
var batchOptions = []string{
	"--batch-size", "--batch_size", "--train-batch-size", "--train_batch_size", "--per_device_train_batch_size", "--per-device-train-batch-size",
	"--micro-batch-size", "--micro_batch_size", "--batch", "--bs", "-b", "-bs",
}

// batchVariables carry it where no argument does.
var batchVariables = []string{"BATCH_SIZE", "TRAIN_BATCH_SIZE"}

// WithBatch puts a batch size into a command: for each {} in its arguments; else for the value after the one option of
// batchOptions that it has, or after such a name and an equals sign, as Hydra takes it (train.batch_size=8); else into a
// variable of batchVariables that the environment has. The command and the environment are not changed themselves.
func WithBatch(command, env []string, batch int) (newCommand, newEnv []string, err error) {
	value := strconv.Itoa(batch)
	if slices.ContainsFunc(command, func(a string) bool { return strings.Contains(a, Mark) }) {
		for _, a := range command {
			newCommand = append(newCommand, strings.ReplaceAll(a, Mark, value))
		}
		return newCommand, env, nil
	}
	places := batchPlaces(command)
	if len(places) > 1 {
		return nil, nil, fmt.Errorf("the command names a batch size %d times (%s): write %s where the number goes", len(places), strings.Join(placeNames(command, places), ", "), Mark)
	}
	if len(places) == 1 {
		newCommand = slices.Clone(command)
		if name, _, ok := strings.Cut(command[places[0]], "="); ok {
			newCommand[places[0]] = name + "=" + value
		} else {
			newCommand[places[0]+1] = value
		}
		return newCommand, env, nil
	}
	for _, name := range batchVariables {
		if i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }); i >= 0 {
			newEnv = slices.Clone(env)
			newEnv[i] = name + "=" + value
			return command, newEnv, nil
		}
	}
	return nil, nil, fmt.Errorf("the command names no batch size: write %s where the number goes, such as --batch-size %s", Mark, Mark)
}

// batchPlaces are the arguments that name a batch size: an option with its value in it or after it.
func batchPlaces(command []string) []int {
	var places []int
	for i, a := range command {
		name, value, joined := strings.Cut(a, "=")
		if !joined && i+1 < len(command) {
			value = command[i+1]
		}
		if !isNumber(value) {
			continue
		}
		if key := name[strings.LastIndex(name, ".")+1:]; joined && !strings.HasPrefix(name, "-") {
			name = "--" + key
		}
		if slices.Contains(batchOptions, name) {
			places = append(places, i)
		}
	}
	return places
}

// BatchOf is the batch size that the command has now; 0 when it has none, or a mark.
func BatchOf(command []string) int {
	places := batchPlaces(command)
	if len(places) != 1 {
		return 0
	}
	_, value, joined := strings.Cut(command[places[0]], "=")
	if !joined {
		value = command[places[0]+1]
	}
	n, _ := strconv.Atoi(value)
	return n
}

func placeNames(command []string, places []int) []string {
	var names []string
	for _, i := range places {
		names = append(names, command[i])
	}
	return names
}

func isNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
}
