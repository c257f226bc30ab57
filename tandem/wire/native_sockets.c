/* Many sockets in one call: what each has is received, or each gets its own bytes.
 *
 * No call waits. Whose the sockets are, and whether they are open, the caller knows: nobody else has
 * a turn between its look and the end of the call.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include "native.h"

/* Receives at most each_max bytes from each socket, one behind the other, into `buffer`, which has
 * room for as much of all of them. ends[n] becomes where what socket n had ends; errors[n] 0, -1 if
 * its peer has ended it, or errno. Returns how many errors there are: that a socket has nothing is
 * none. */
i64 tandem_receive_each(const i32 *sockets, i64 count, u8 *buffer, i64 each_max, i64 *ends,
                        i64 *errors) {
    i64 used = 0, bad = 0;
    for (i64 n = 0; n < count; n++) {
        ssize_t got;
        do got = recv(sockets[n], buffer + used, (size_t)each_max, MSG_DONTWAIT);
        while (got < 0 && errno == EINTR);
        errors[n] = got > 0 ? 0 : !got ? -1 : errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
        if (got > 0) used += got;
        bad += errors[n] != 0;
        ends[n] = used;
    }
    return bad;
}

/* Sends to socket n what is in front of ends[n] and behind ends[n - 1]. A number below 0 is no
 * socket. sent[n] becomes how many bytes were taken. Returns how many were not sent everything. */
i64 tandem_send_each(const i32 *sockets, i64 count, const u8 *data, const i64 *ends, i64 *sent) {
    i64 start = 0, short_of = 0;
    for (i64 n = 0; n < count; n++) {
        ssize_t taken = -1;
        if (sockets[n] >= 0) do
                taken = send(sockets[n], data + start, (size_t)(ends[n] - start),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
            while (taken < 0 && errno == EINTR);
        sent[n] = taken > 0 ? taken : 0;
        short_of += sent[n] != ends[n] - start;
        start = ends[n];
    }
    return short_of;
}
