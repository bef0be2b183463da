# C types of hot_decode.py, for the compiled form; signatures only.
cimport cython

cdef int _SEND, _ACK, _FLOW, _COMMAND, _BODY_TAG, _BODY
cdef int _OK, _CHECKSUM_MISMATCH, _NOT_PLAIN, _ENTRY_MALFORMED, _OTHER_PRODUCER
cdef int _DELIVER_AT, _MARKER_TYPE, _LEAST_BITS, _MOST_BITS
cdef long long _IN_TRANSACTION
cdef Py_ssize_t _COPY_LIMIT
cdef bint _INTERPRETED

cdef class SendRun:
    cdef public Py_ssize_t capacity
    cdef public long long producer_id
    cdef public Py_ssize_t count
    cdef public Py_ssize_t chunks
    cdef int _chunk
    cdef int _seen
    cdef public bint transactional
    cdef public long long most_bits
    cdef public long long least_bits
    cdef public int error
    cdef public long long error_sequence_id
    cdef public object sequence_ids
    cdef public object highest_sequence_ids
    cdef public object num_messages
    cdef public object starts
    cdef public object ends
    cdef long long[::1] _sequences
    cdef long long[::1] _highest
    cdef int[::1] _numbers
    cdef long long[::1] _starts
    cdef long long[::1] _ends

cdef class AckRun:
    cdef public Py_ssize_t capacity
    cdef public long long consumer_id
    cdef public Py_ssize_t count
    cdef public object ledger_ids
    cdef public object entry_ids
    cdef long long[::1] _ledgers
    cdef long long[::1] _entries

@cython.locals(size='long long')
cdef long long _size_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(index='Py_ssize_t')
cdef Py_ssize_t _varint_end(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long', byte='long long', shift='int')
cdef long long _varint(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

cpdef Py_ssize_t frame_end(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(total='long long', command_size='long long', kind='int')
cpdef long long next_frame(bytes buffer, Py_ssize_t position, Py_ssize_t limit, long long max_frame) except? -1

@cython.locals(kind='long long', after='Py_ssize_t', tag='long long')
cdef long long _scan_type(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(wire='int', after='Py_ssize_t', size='long long')
cdef Py_ssize_t _skip(bytes buffer, Py_ssize_t position, Py_ssize_t end, long long tag) except? -1

@cython.locals(count='Py_ssize_t', before='Py_ssize_t', total='long long', end='Py_ssize_t', command_end='Py_ssize_t', error='int')
cpdef Py_ssize_t read_sends(bytes buffer, Py_ssize_t position, Py_ssize_t limit, long long max_frame, SendRun run, bint verify_checksum, Py_ssize_t max_count) except? -1

@cython.locals(position='Py_ssize_t', producer_id='long long', sequence_id='long long', highest='long long', messages='long long', seen='int', least_bits='long long', most_bits='long long', chunk='int', tag='int', value='long long', after='Py_ssize_t')
cdef int _read_send(bytes buffer, Py_ssize_t frame, Py_ssize_t end, SendRun run, Py_ssize_t index) except -1

@cython.locals(position='Py_ssize_t', size='long long', found='long long')
cdef int _check_entry(bytes buffer, Py_ssize_t start, Py_ssize_t end, bint verify_checksum) except -1

@cython.locals(count='Py_ssize_t', start='Py_ssize_t', total='long long', end='Py_ssize_t', after='Py_ssize_t')
cpdef Py_ssize_t read_acks(bytes buffer, Py_ssize_t position, Py_ssize_t limit, long long max_frame, AckRun run) except? -1

@cython.locals(after='Py_ssize_t', consumer_id='long long')
cdef Py_ssize_t _read_ack(bytes buffer, Py_ssize_t position, Py_ssize_t end, AckRun run, Py_ssize_t count) except? -1

@cython.locals(seen='int', tag='int', value='long long', after='Py_ssize_t')
cdef int _read_message_id(bytes buffer, Py_ssize_t position, Py_ssize_t end, AckRun run, Py_ssize_t index) except -1

@cython.locals(end='Py_ssize_t', after='Py_ssize_t', permits='long long')
cpdef read_flow(bytes buffer, Py_ssize_t position)

@cython.locals(position='Py_ssize_t', size='long long')
cdef Py_ssize_t _metadata_at(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1

@cython.locals(position='Py_ssize_t', tag='long long', after='Py_ssize_t')
cdef long long _metadata_number(bytes buffer, Py_ssize_t start, Py_ssize_t end, long long wanted, long long default) except? -1

@cython.locals(position='Py_ssize_t', tag='long long', after='Py_ssize_t', sign='int', size='long long', transaction='long long')
cdef long long _batch_size(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1

@cython.locals(index='Py_ssize_t', timed='Py_ssize_t', marked='Py_ssize_t', transactional='Py_ssize_t', size='long long', start='Py_ssize_t', end='Py_ssize_t')
cpdef Py_ssize_t batch_sizes(bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, int[::1] out) except? -1

cpdef object transaction_of(bytes buffer, Py_ssize_t start, Py_ssize_t end)

cpdef long long deliver_at(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1

cpdef long long publish_time(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1
