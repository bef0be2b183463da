# C types of hot_client_decode.py, for the compiled form; signatures only.
cimport cython

cdef int _RECEIPT, _MESSAGE, _COMMAND, _BODY_TAG, _BODY
cdef int _OK, _CHECKSUM_MISMATCH, _NOT_PLAIN, _ENTRY_MALFORMED, _OTHER_CONSUMER
cdef Py_ssize_t _COPY_LIMIT

cdef class ReceiptRun:
    cdef public Py_ssize_t capacity
    cdef public long long producer_id
    cdef public Py_ssize_t count
    cdef public object sequence_ids
    cdef public object highest_sequence_ids
    cdef public object ledger_ids
    cdef public object entry_ids
    cdef long long[::1] _sequences
    cdef long long[::1] _highest
    cdef long long[::1] _ledgers
    cdef long long[::1] _entries

cdef class MessageRun:
    cdef public Py_ssize_t capacity
    cdef public long long consumer_id
    cdef public Py_ssize_t count
    cdef public int error
    cdef public long long total_messages
    cdef public long long epoch
    cdef public object ledger_ids
    cdef public object entry_ids
    cdef public object redeliveries
    cdef public object batch_sizes
    cdef public object starts
    cdef public object ends
    cdef long long[::1] _ledgers
    cdef long long[::1] _entries
    cdef int[::1] _redelivered
    cdef int[::1] _sizes
    cdef long long[::1] _starts
    cdef long long[::1] _ends

@cython.locals(size='long long')
cdef long long _size_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(index='Py_ssize_t')
cdef Py_ssize_t _varint_end(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long', byte='long long', shift='int')
cdef long long _varint(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(count='Py_ssize_t', total='long long', end='Py_ssize_t')
cpdef Py_ssize_t read_receipts(bytes buffer, Py_ssize_t position, Py_ssize_t limit, long long max_frame, ReceiptRun run) except? -1

@cython.locals(seen='int', tag='int', value='long long', after='Py_ssize_t', producer_id='long long')
cdef bint _read_receipt(bytes buffer, Py_ssize_t position, Py_ssize_t end, ReceiptRun run, Py_ssize_t index) except -1

@cython.locals(seen='int', tag='int', value='long long', after='Py_ssize_t', ledger_id='long long', entry_id='long long')
cdef bint _read_id(bytes buffer, Py_ssize_t position, Py_ssize_t end, long long[::1] ledgers, long long[::1] entries, Py_ssize_t index) except -1

@cython.locals(position='Py_ssize_t', end='Py_ssize_t', after='Py_ssize_t', tag='int', seen='int', value='long long', ledger_id='long long', entry_id='long long', partition='long long', batch_index='long long', batch_size='long long')
cpdef tuple decode_message_id(bytes data)

@cython.locals(count='Py_ssize_t', total='long long', end='Py_ssize_t', command_end='Py_ssize_t', error='int', size='long long')
cpdef Py_ssize_t read_messages(bytes buffer, Py_ssize_t position, Py_ssize_t limit, long long max_frame, MessageRun run, bint verify_checksum) except? -1

@cython.locals(seen='int', tag='int', value='long long', after='Py_ssize_t', consumer_id='long long', redelivered='long long', epoch='long long')
cdef int _read_message(bytes buffer, Py_ssize_t position, Py_ssize_t end, MessageRun run, Py_ssize_t index) except -1

@cython.locals(size='long long', found='long long')
cdef int _check_entry(bytes buffer, Py_ssize_t start, Py_ssize_t end, bint verify_checksum) except -1

@cython.locals(tag='long long', after='Py_ssize_t', value='long long', end='Py_ssize_t')
cdef long long _batch_size(bytes buffer, Py_ssize_t start, Py_ssize_t entry_end) except? -2

@cython.locals(limit='Py_ssize_t', start='Py_ssize_t', size='long long', end='Py_ssize_t', after='Py_ssize_t', tag='long long', seen='int')
cpdef Py_ssize_t plain_payload(bytes entry) except? -2

@cython.locals(wire='int', after='Py_ssize_t', size='long long')
cdef Py_ssize_t _skip(bytes buffer, Py_ssize_t position, Py_ssize_t end, long long tag) except? -1

@cython.locals(index='Py_ssize_t', position='Py_ssize_t', limit='Py_ssize_t', start='Py_ssize_t', end='Py_ssize_t', size='long long')
cpdef list split_places(bytes payload, Py_ssize_t count)

@cython.locals(tag='long long', after='Py_ssize_t', value='long long')
cdef long long _payload_size(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -2
