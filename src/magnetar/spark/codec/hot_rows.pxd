# C types of hot_rows.py, for the compiled form; signatures only.
cimport cython

cdef int INTACT, DAMAGED, ENCRYPTED, BATCH_DAMAGED, KEY_DAMAGED, TIME_BEYOND
cdef long long _NO_LIMIT, _LAST_TIME

cdef class Bytes:
    cdef public bytearray data
    cdef public object offsets
    cdef public bytearray valid
    cdef public Py_ssize_t rows
    cdef public Py_ssize_t size
    cdef public Py_ssize_t end
    cdef unsigned char[::1] _data
    cdef int[::1] _offsets
    cdef unsigned char[::1] _valid

    @cython.locals(grown=bytearray)
    cdef int _need(self, Py_ssize_t more) except -1
    @cython.locals(valid=bytearray)
    cdef int _need_rows(self, Py_ssize_t rows) except -1
    @cython.locals(after='Py_ssize_t')
    cdef int _put(self, Py_ssize_t row, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int _put_null(self, Py_ssize_t row) except -1
    @cython.locals(end='Py_ssize_t')
    cdef int _put_number(self, int tag, unsigned long long value) except -1
    cdef int _close(self, Py_ssize_t row) except -1
    cdef int _truncate(self, Py_ssize_t rows) except -1

cdef class RowBuilder:
    cdef public long long partition
    cdef object _decompress
    cdef public Py_ssize_t rows
    cdef public Py_ssize_t count
    cdef public long long taken
    cdef public Bytes values
    cdef public Bytes keys
    cdef public Bytes ids
    cdef public Bytes names
    cdef public Bytes contents
    cdef public object properties
    cdef public object publish_times
    cdef public object event_times
    cdef public object versions
    cdef public list schema_versions
    cdef public long long times_from
    cdef public long long times_to
    cdef public Bytes wanted_keys
    cdef public Py_ssize_t wanted_count
    cdef int[::1] _properties
    cdef long long[::1] _publish_times
    cdef long long[::1] _event_times
    cdef int[::1] _versions
    cdef Py_ssize_t _property_count
    cdef long long _publish_time
    cdef long long _batch_size
    cdef long long _codec
    cdef long long _uncompressed
    cdef bint _encrypted
    cdef bint _chunk
    cdef bint _marker
    cdef int _version
    cdef Py_ssize_t _version_start
    cdef Py_ssize_t _version_end
    cdef bint _has_key
    cdef Py_ssize_t _key_start
    cdef Py_ssize_t _key_end
    cdef bint _key_encoded
    cdef bint _null_key
    cdef bint _null_value
    cdef long long _event_time
    cdef long long _payload_size
    cdef bint _compacted_out

    @cython.locals(before='Py_ssize_t', entry='const unsigned char[::1]', body='const unsigned char[::1]', limit='Py_ssize_t', start='Py_ssize_t', payload='long long', found='int')
    cpdef int add(self, long long ledger_id, long long entry_id, bytes data, long long first, long long end) except -1
    @cython.locals(count='long long', index='long long', start='Py_ssize_t', size='long long', content='Py_ssize_t', found='int')
    cdef int _batch(self, const unsigned char[::1] body, Py_ssize_t position, Py_ssize_t limit, long long ledger_id, long long entry_id, long long first, long long end) except -1
    @cython.locals(row='Py_ssize_t', key=bytes)
    cdef int _row(self, const unsigned char[::1] head, const unsigned char[::1] body, long long ledger_id, long long entry_id, long long index, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(wanted=Bytes, keys=Bytes, start='Py_ssize_t', size='Py_ssize_t', each='Py_ssize_t', begin='Py_ssize_t', place='Py_ssize_t')
    cdef bint _is_wanted(self, Py_ssize_t row) except -1
    @cython.locals(ids=Bytes)
    cdef int _put_id(self, Py_ssize_t row, long long ledger_id, long long entry_id, long long index) except -1
    @cython.locals(ids=Bytes, start='Py_ssize_t')
    cpdef int name_first_chunk(self, long long ledger_id, long long entry_id) except -1
    cdef int _grow(self) except -1
    cdef int _cut(self, Py_ssize_t rows) except -1
    cdef int _forget_properties(self) except -1
    @cython.locals(known=list)
    cdef int _version_index(self, bytes version) except -1
    cdef int _clear(self) except -1
    cdef int _clear_own(self) except -1
    @cython.locals(after='Py_ssize_t', start='Py_ssize_t', tag='long long')
    cdef bint _read_metadata(self, const unsigned char[::1] entry, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _take_number(self, long long field, long long value) except -1
    cdef bint _take_bytes(self, long long field, const unsigned char[::1] entry, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(after='Py_ssize_t', start='Py_ssize_t', tag='long long')
    cdef bint _read_own(self, const unsigned char[::1] body, Py_ssize_t position, Py_ssize_t end) except -1
    @cython.locals(after='Py_ssize_t', start='Py_ssize_t', tag='long long', name='Py_ssize_t', name_end='Py_ssize_t', content='Py_ssize_t', content_end='Py_ssize_t', row='Py_ssize_t')
    cdef bint _read_property(self, const unsigned char[::1] source, Py_ssize_t position, Py_ssize_t end) except -1

@cython.locals(start='long long')
cdef Py_ssize_t _metadata_at(const unsigned char[::1] entry, Py_ssize_t limit) except? -2

@cython.locals(size='long long')
cdef long long _size_at(const unsigned char[::1] buffer, Py_ssize_t position) except? -1

@cython.locals(index='Py_ssize_t')
cdef Py_ssize_t _varint_end(const unsigned char[::1] buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long', byte='long long', shift='int')
cdef long long _varint(const unsigned char[::1] buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(wire='int', after='Py_ssize_t', size='long long')
cdef Py_ssize_t _skip(const unsigned char[::1] buffer, Py_ssize_t position, Py_ssize_t end, long long tag) except? -1
