/*
 * Tells the Python layer which lines of the program's own code are run, each once, where the interpreter has no
 * sys.monitoring: before Python 3.12. A trace function in Python will not do: for each function that it is told of, the
 * interpreter makes a table of the function's names, which holds the function's arguments for as long as it runs, and
 * so memory of the card that would have been free.
 *
 * Everything here runs with the interpreter's lock held.
 */
#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct object object;

enum {
	TRACE_LINE = 2,
	FIRST_SLOTS = 1 << 14,
	MOST_CODES = 1 << 20,
	MOST_LINE = 1 << 20
};

/* The code of a function: whether it is the program's own, and a bit for each line that was told. */
struct code {
	object *code;
	size_t at; /* of its lines in told_lines */
	int size;
	bool own;
};

static struct {
	int (*line)(object *);
	object *(*code)(object *);
	object *(*attribute)(object *, const char *);
	object *(*call)(object *, const char *, ...);
	int (*is_true)(object *);
	void (*keep)(object *), (*drop)(object *), (*clear)(void);
	void (*set_trace)(int (*)(object *, object *, int, object *), object *);
} python;

static struct code *codes;
static size_t slots, used;
static unsigned char *told_lines;
static size_t told_size, told_used;

static struct code *place(struct code *table, size_t size, const object *code)
{
	size_t at = ((uintptr_t)code >> 4) * 0x9E3779B97F4A7C15u & (size - 1);

	while (table[at].code && table[at].code != code)
		at = (at + 1) & (size - 1);
	return &table[at];
}

static bool grow(void)
{
	size_t size = slots ? 2 * slots : FIRST_SLOTS;
	struct code *larger = size <= MOST_CODES ? calloc(size, sizeof *larger) : NULL;

	if (!larger)
		return false;
	for (size_t i = 0; i < slots; i++)
		if (codes[i].code)
			*place(larger, size, codes[i].code) = codes[i];
	free(codes);
	codes = larger;
	slots = size;
	return true;
}

/* Asks the Python layer about some code (line 0), or tells it a line. */
static bool ask(object *layer, object *code, int line)
{
	object *answer = python.call(layer, "Oi", code, line);
	bool yes;

	if (!answer) {
		python.clear();
		return false;
	}
	yes = python.is_true(answer) == 1;
	python.drop(answer);
	return yes;
}

/* Makes room for the bits of more lines of some code. */
static bool lengthen(struct code *c, int bytes)
{
	if (told_used + bytes > told_size) {
		size_t size = 2 * (told_used + bytes);
		unsigned char *larger = realloc(told_lines, size);

		if (!larger)
			return false;
		told_lines = larger;
		told_size = size;
	}
	for (int i = 0; i < bytes; i++)
		told_lines[told_used + i] = i < c->size ? told_lines[c->at + i] : 0;
	c->at = told_used;
	c->size = bytes;
	told_used += bytes;
	return true;
}

static void told(object *layer, struct code *c, int line)
{
	unsigned char *byte, bit = 1 << line % 8;

	if (line <= 0 || line >= MOST_LINE || (line / 8 >= c->size && !lengthen(c, line / 8 + 64)))
		return;
	byte = &told_lines[c->at + line / 8];
	if (*byte & bit)
		return;
	*byte |= bit;
	ask(layer, c->code, line);
}

static int follow(object *layer, object *frame, int what, object *unused)
{
	struct code *c;
	object *code;

	if (what != TRACE_LINE)
		return 0;
	code = python.code ? python.code(frame) : python.attribute(frame, "f_code");
	if (!code) {
		python.clear();
		return 0;
	}
	c = place(codes, slots, code);
	if (!c->code && (2 * used < slots || grow())) {
		bool own;

		python.keep(code); /* its address is its name from here on */
		own = ask(layer, code, 0);
		c = place(codes, slots, code);
		c->code = code;
		c->own = own;
		used++;
	}
	if (c->own)
		told(layer, c, python.line(frame));
	python.drop(code);
	return 0;
}

/* From here on in the thread that calls; layer(code, line) is asked, and told. */
GV_EXPORT bool gresize_vgpu_follow_lines(object *layer)
{
	static const struct {
		void **to;
		const char *name;
	} wanted[] = {
		{(void **)&python.line, "PyFrame_GetLineNumber"},
		{(void **)&python.attribute, "PyObject_GetAttrString"},
		{(void **)&python.call, "PyObject_CallFunction"},
		{(void **)&python.is_true, "PyObject_IsTrue"},
		{(void **)&python.keep, "Py_IncRef"},
		{(void **)&python.drop, "Py_DecRef"},
		{(void **)&python.clear, "PyErr_Clear"},
		{(void **)&python.set_trace, "PyEval_SetTrace"},
	};

	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
		if (!(*wanted[i].to = dlsym(RTLD_DEFAULT, wanted[i].name)))
			return false;
	*(void **)&python.code = dlsym(RTLD_DEFAULT, "PyFrame_GetCode"); /* from 3.9 on */
	if (!slots && !grow())
		return false;
	python.set_trace(follow, layer);
	return true;
}
