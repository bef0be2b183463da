# C types of hot_raw.py, for the compiled form; signatures only.
cimport cython

cdef int _HEADER, _SUB
cdef long long _MAGIC

cdef class Histogram:
    cdef public object counts
    cdef public long long total
    cdef public long long maximum
    cdef long long[::1] _counts

    @cython.locals(index='long long', rest='long long')
    cpdef record(self, long long value, long long times=*)

cdef class Window:
    cdef public long long first
    cdef public long long last

@cython.locals(last='Py_ssize_t')
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t position, long long value) except -1

cdef int _put_four(unsigned char[::1] out, Py_ssize_t position, long long value) except -1

cdef int _put_header(unsigned char[::1] out, Py_ssize_t position, long long producer, long long sequence, long long due) except -1

@cython.locals(value='long long', index='Py_ssize_t')
cdef long long _eight_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(value='long long')
cdef long long _four_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(size='int')
cdef int _varint_size(long long value) except -1

cdef class RawSender:
    cdef public long long producer_id
    cdef public long long number
    cdef public Py_ssize_t batch
    cdef public long long next_sequence
    cdef public long long next_receipt
    cdef public long long errors
    cdef public Histogram latencies
    cdef Window _window
    cdef bytes _head
    cdef bytes _content
    cdef Py_ssize_t _size
    cdef bytearray _frame
    cdef object _checked
    cdef Py_ssize_t _sequence_at
    cdef Py_ssize_t _again_at
    cdef Py_ssize_t _time_at
    cdef Py_ssize_t _content_at
    cdef Py_ssize_t _checksum_at
    cdef long long _until
    cdef bytearray _body
    cdef long long[::1] _dues
    cdef int[::1] _sizes
    cdef long long _mask
    cdef long long _sent
    cdef long long _told

    @cython.locals(n='long long', parts=list)
    cpdef bytearray make(self, Py_ssize_t count, long long due, long long interval, long long publish_ms)

    @cython.locals(position='Py_ssize_t', size='Py_ssize_t', whole=bytearray, frame='unsigned char[::1]', out='unsigned char[::1]', checksum='long long')
    cdef bytearray _make_run(self, Py_ssize_t count, long long due, long long interval, long long publish_ms)

    cdef int _patch(self, unsigned char[::1] frame, Py_ssize_t position, long long due) except -1

    @cython.locals(sequence='long long', size='int', command_end='Py_ssize_t')
    cpdef _make_template(self, long long publish_ms)

    @cython.locals(out=bytearray, n='Py_ssize_t', first='long long', highest='long long', tail=bytearray)
    cdef bytearray _make_batches(self, Py_ssize_t count, long long due, long long interval, long long publish_ms)

    @cython.locals(position='Py_ssize_t', start='Py_ssize_t', index='Py_ssize_t', body='unsigned char[::1]', content='const unsigned char[::1]', size='Py_ssize_t')
    cdef bytes _batch_payload(self, Py_ssize_t count, long long due, long long interval)

    @cython.locals(index='Py_ssize_t', place='long long', size='int', due='long long', before='long long')
    cpdef long long receipts(self, long long[::1] sequence_ids, Py_ssize_t count, long long now)

cdef class OrderCheck:
    cdef public object expected
    cdef public object missing
    cdef public long long duplicates
    cdef public long long disorder
    cdef long long[::1] _expected
    cdef Py_ssize_t _producers

    cdef int take(self, long long producer, long long sequence) except -1
    cpdef _odd(self, long long producer, long long sequence)

cdef class RawReceiver:
    cdef public long long messages
    cdef public long long size
    cdef public long long foreign
    cdef public Histogram latencies
    cdef OrderCheck _order
    cdef Window _window

    @cython.locals(index='Py_ssize_t', start='Py_ssize_t', end='Py_ssize_t', entry_end='Py_ssize_t', size='long long', left='int', metadata='long long', published='long long')
    cpdef take(self, bytes buffer, long long[::1] starts, long long[::1] ends, int[::1] batch_sizes, Py_ssize_t count, long long now)

    cpdef take_content(self, bytes content, long long published_ms, long long now)

    @cython.locals(due='long long', sequence='long long', producer='long long')
    cdef int _message(self, bytes buffer, Py_ssize_t start, Py_ssize_t end, long long published, long long now) except -1

@cython.locals(tag='int', value='long long', shift='int', byte='long long')
cdef long long _number(bytes buffer, Py_ssize_t position, Py_ssize_t end, int wanted) except? -1
