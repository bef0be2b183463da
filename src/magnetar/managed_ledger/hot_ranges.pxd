# C types of hot_ranges.py, for the compiled form; signatures only.
cimport cython

cdef Py_ssize_t _SHIFT, _SIZE, _LAST

cdef class _Block:
    cdef public bytearray marks
    cdef public Py_ssize_t count

cdef class _Runs:
    cdef list starts
    cdef list ends

    @cython.locals(first='Py_ssize_t', last='Py_ssize_t')
    cdef add(self, long long start, long long end)

    @cython.locals(index='Py_ssize_t')
    cdef long long end_at(self, long long number) except? -1

    @cython.locals(index='Py_ssize_t')
    cdef forget_below(self, long long number)

@cython.locals(low='Py_ssize_t', high='Py_ssize_t', middle='Py_ssize_t')
cdef Py_ssize_t _at_or_above(list values, long long wanted) except -1

cdef class EntryRanges:
    cdef _Runs _full
    cdef dict _blocks
    cdef list _numbers

    @cython.locals(block=_Block)
    cdef _Block _open(self, long long number)

    cdef _drop(self, long long number)

    cdef _complete(self, long long number)

    @cython.locals(added='long long', number='long long', stop='long long', base='long long')
    cpdef long long add(self, long long start, long long end) except -1

    @cython.locals(block=_Block, added='Py_ssize_t')
    cdef long long _add_part(self, long long number, Py_ssize_t low, Py_ssize_t high) except -1

    @cython.locals(known='long long', low='Py_ssize_t', high='Py_ssize_t')
    cdef long long _add_blocks(self, long long first, long long stop) except -1

    @cython.locals(added='long long', known='long long', block=_Block, index='Py_ssize_t', entry_id='long long', number='long long')
    cpdef long long add_each(self, long long[::1] entry_ids, Py_ssize_t first, Py_ssize_t stop, long long lowest, long long limit) except -1

    @cython.locals(block=_Block, number='long long')
    cpdef bint contains(self, long long entry_id) except -1

    @cython.locals(block=_Block, number='long long', place='Py_ssize_t', end='long long')
    cpdef long long end_of_range_at(self, long long entry_id) except? -1

    @cython.locals(number='long long', index='Py_ssize_t', base='long long', place='Py_ssize_t')
    cpdef object start_of_next_range(self, long long entry_id)

    @cython.locals(block=_Block, number='long long', place='Py_ssize_t', index='Py_ssize_t')
    cpdef forget_below(self, long long entry_id)

    cpdef bint is_empty(self) except -1

@cython.locals(marks=bytearray)
cdef bint _mark(_Block block, Py_ssize_t place) except -1

@cython.locals(index='Py_ssize_t')
cpdef Py_ssize_t same_ledger_until(long long[::1] ledger_ids, Py_ssize_t first, Py_ssize_t count) except -1

@cython.locals(index='Py_ssize_t')
cpdef Py_ssize_t consecutive_until(long long[::1] entry_ids, Py_ssize_t first, Py_ssize_t stop) except -1
