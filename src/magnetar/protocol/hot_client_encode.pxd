# C types of hot_client_encode.py, for the compiled form; signatures only.
cimport cython

cdef Py_ssize_t _SEND_ROOM, _ACK_ROOM, _ACK_ID_ROOM, _ID_ROOM, _SINGLE_ROOM

@cython.locals(last='Py_ssize_t')
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t position, long long value) except -1

cdef int _put_size(unsigned char[::1] out, Py_ssize_t position, long long size) except -1

@cython.locals(size='int')
cdef int _varint_size(long long value) except -1

@cython.locals(out=bytearray, room='Py_ssize_t', command_end='Py_ssize_t', payload_at='Py_ssize_t')
cpdef bytearray encode_send(long long producer_id, long long sequence_id, long long highest_sequence_id, long long num_messages, bytes metadata_head, long long publish_time, bytes metadata_tail, bytes payload)

@cython.locals(position='Py_ssize_t')
cdef Py_ssize_t _put_send_command(unsigned char[::1] out, long long producer_id, long long sequence_id, long long highest_sequence_id, long long num_messages) except -1

@cython.locals(start='Py_ssize_t')
cdef Py_ssize_t _put_metadata(unsigned char[::1] out, Py_ssize_t position, const unsigned char[::1] head, long long sequence_id, long long publish_time, const unsigned char[::1] tail) except -1

cdef int _finish_send(unsigned char[::1] out, Py_ssize_t command_end, Py_ssize_t metadata_end, Py_ssize_t size) except -1

@cython.locals(out=bytearray, size='Py_ssize_t')
cpdef bytearray encode_acks(long long consumer_id, int ack_type, long long[::1] ledger_ids, long long[::1] entry_ids, Py_ssize_t first, Py_ssize_t count, long long request_id)

@cython.locals(end='Py_ssize_t', start='Py_ssize_t', body='Py_ssize_t', index='Py_ssize_t', position='Py_ssize_t')
cdef Py_ssize_t _put_acks(unsigned char[::1] out, long long consumer_id, int ack_type, long long[::1] ledger_ids, long long[::1] entry_ids, Py_ssize_t first, Py_ssize_t count, long long request_id) except -1

cdef class BatchBuffer:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t size
    cdef bytearray _data

    @cython.locals(needed='Py_ssize_t', position='Py_ssize_t')
    cpdef add(self, bytes metadata, long long sequence_id, bytes payload)

    @cython.locals(taken=bytes)
    cpdef bytes take(self)

@cython.locals(position='Py_ssize_t')
cdef Py_ssize_t _put_single(unsigned char[::1] out, Py_ssize_t start, const unsigned char[::1] metadata, long long sequence_id, Py_ssize_t payload_size) except -1

@cython.locals(out=bytearray, position='Py_ssize_t')
cpdef bytes encode_message_id(long long ledger_id, long long entry_id, long long partition, long long batch_index, long long batch_size)
