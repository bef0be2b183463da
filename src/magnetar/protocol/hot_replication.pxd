# C types of hot_replication.py, for the compiled form; signatures only.
cimport cython

cdef int _REPLICATED_FROM
cdef bytes _SOURCE
cdef Py_ssize_t _COPY_LIMIT, _ROOM

cdef class ReplicationRun:
    cdef public Py_ssize_t capacity
    cdef public bint placed
    cdef public bytes remote
    cdef public bytes origin
    cdef public long long max_frame
    cdef public dict versions
    cdef public bytes local_version
    cdef public bytes remote_version
    cdef public object kinds
    cdef public object sequence_ids
    cdef int[::1] _kinds
    cdef long long[::1] _sequences
    cdef public int stopped
    cdef public bytes version
    cdef public bytearray frames
    cdef public Py_ssize_t sent
    cdef public long long messages
    cdef Py_ssize_t start
    cdef Py_ssize_t stop
    cdef Py_ssize_t insert_at
    cdef long long sequence_id
    cdef long long batch_size
    cdef bint is_chunk
    cdef bint is_marker
    cdef bint plain
    cdef Py_ssize_t version_at
    cdef Py_ssize_t version_end
    cdef Py_ssize_t command_end

cdef class InFlight:
    cdef public Py_ssize_t capacity
    cdef public Py_ssize_t first
    cdef public Py_ssize_t count
    cdef public long long size
    cdef long long[::1] _ledgers
    cdef long long[::1] _entries
    cdef long long[::1] _sequences
    cdef long long[::1] _sizes

    @cython.locals(slot='Py_ssize_t')
    cpdef tuple head(self)

    @cython.locals(capacity='Py_ssize_t', index='Py_ssize_t', slot='Py_ssize_t', ledgers='long long[::1]', entries='long long[::1]', sequences='long long[::1]', sizes='long long[::1]')
    cdef int _grow(self, Py_ssize_t needed) except -1

    @cython.locals(share='long long', index='Py_ssize_t', kind='int', slot='Py_ssize_t')
    cpdef add(self, ReplicationRun run, Py_ssize_t first, Py_ssize_t end, long long ledger_id, long long first_entry_id)

    @cython.locals(index='Py_ssize_t', slot='Py_ssize_t')
    cpdef bint confirm(self, long long[::1] sequence_ids, long long[::1] highest_sequence_ids, Py_ssize_t count, bint by_position) except -1

@cython.locals(index='Py_ssize_t')
cpdef Py_ssize_t first_dropped(long long[::1] stored_ledgers, long long[::1] ledger_ids, long long[::1] entry_ids, Py_ssize_t count, long long known_ledger, long long known_entry) except -1

@cython.locals(room='Py_ssize_t', index='Py_ssize_t', out=bytearray, source='const unsigned char[::1]', at='Py_ssize_t', after='Py_ssize_t', kind='int', entry_id='long long')
cpdef Py_ssize_t encode_replicated(ReplicationRun run, long long producer_id, bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, long long ledger_id, long long first_entry_id, long long oldest_ms) except -1

@cython.locals(messages='long long', index='Py_ssize_t', kind='int')
cpdef long long count_replicated(ReplicationRun run, bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count) except -1

@cython.locals(version=bytes)
cdef bint _find_version(ReplicationRun run, bytes buffer) except -1

@cython.locals(index='Py_ssize_t')
cdef bint _same(bytes buffer, Py_ssize_t start, Py_ssize_t end, bytes other) except -1

@cython.locals(position='Py_ssize_t', stop='Py_ssize_t', field='Py_ssize_t', after='Py_ssize_t', tag='long long', size='long long', value='long long', published_ms='long long', marker='long long', named='bint', chosen='bint')
cdef int _look(ReplicationRun run, bytes buffer, Py_ssize_t start, Py_ssize_t end, long long oldest_ms) except -1

@cython.locals(position='Py_ssize_t', metadata='Py_ssize_t', size='Py_ssize_t')
cdef Py_ssize_t _put_frame(ReplicationRun run, unsigned char[::1] out, Py_ssize_t at, long long producer_id, bytes buffer, const unsigned char[::1] source, Py_ssize_t end, long long ledger_id, long long entry_id) except -1

@cython.locals(end='Py_ssize_t')
cdef Py_ssize_t _put_message_id(unsigned char[::1] out, Py_ssize_t position, long long ledger_id, long long entry_id) except -1

@cython.locals(ledger_digits='int', entry_digits='int', size='Py_ssize_t')
cdef Py_ssize_t _put_source(unsigned char[::1] out, Py_ssize_t position, long long ledger_id, long long entry_id) except -1

@cython.locals(index='Py_ssize_t')
cdef int _put_decimal(unsigned char[::1] out, Py_ssize_t position, int digits, long long value) except -1

@cython.locals(count='int')
cdef int _digits(long long value) except -1

@cython.locals(end='Py_ssize_t')
cdef Py_ssize_t _put_bytes(unsigned char[::1] out, Py_ssize_t position, const unsigned char[::1] data) except -1

@cython.locals(field='Py_ssize_t', after='Py_ssize_t', tag='long long', size='Py_ssize_t')
cdef Py_ssize_t _copy(ReplicationRun run, unsigned char[::1] out, Py_ssize_t at, bytes buffer, const unsigned char[::1] source, Py_ssize_t position, Py_ssize_t end) except -1

@cython.locals(position='Py_ssize_t')
cdef int _put_checksum(bytearray out, Py_ssize_t command_end, Py_ssize_t end) except -1

@cython.locals(last='Py_ssize_t')
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t position, long long value) except -1

cdef int _put_size(unsigned char[::1] out, Py_ssize_t position, long long size) except -1

@cython.locals(size='long long')
cdef long long _size_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(index='Py_ssize_t')
cdef Py_ssize_t _varint_end(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long', byte='long long', shift='int')
cdef long long _varint(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(size='long long')
cdef Py_ssize_t _metadata_at(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1
