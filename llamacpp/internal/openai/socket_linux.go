package openai

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// look asks the system about the other end of a connection, whatever it has sent and nobody has
// read yet. Gone: the connection was reset, or has failed. Ended: the client has ended its side; it
// may have closed the socket, or wait for its answer still (shutdown). known is false if c is no
// socket.
func look(c net.Conn) (gone, ended, known bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false, false, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false, false, false
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for {
			if _, err := unix.Poll(p, 0); err != unix.EINTR {
				known = err == nil
				break
			}
		}
		gone = p[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
		ended = p[0].Revents&unix.POLLRDHUP != 0
	})
	if err != nil { // this side has closed it
		return true, true, true
	}
	return gone, ended, known
}
