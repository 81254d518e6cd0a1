package contention

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
	// frameHeader is the length of a message, big endian.
	frameHeader = 4
)

// unpacked is what a file holds that is compressed as a whole, or the file itself. Either way it comes in small pieces, so that nothing that it
// claims of its size takes memory; a document in it is bounded when it is cut off.
func unpacked(file *bufio.Reader) (*bufio.Reader, error) {
	switch magic, _ := file.Peek(len(zstdMagic)); {
	case strings.HasPrefix(string(magic), gzipMagic):
		unzipped, err := gzip.NewReader(file)
		if err != nil {
			return nil, err
		}
		return bufio.NewReaderSize(unzipped, 1<<20), nil
	case string(magic) == zstdMagic:
		d, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
		return bufio.NewReaderSize(d, 1<<20), nil
	}
	return file, nil
}

// isFramed reports whether a file is messages, each with its length before it, as the Collector's file exporter writes them with compression (in
// versions that compress each alone), or as protobuf. No text begins so.
func isFramed(file *bufio.Reader) bool {
	start, _ := file.Peek(frameHeader + len(zstdMagic))
	return len(start) > frameHeader && (string(start[frameHeader:]) == zstdMagic || start[0] <= 1 && start[frameHeader] == protobufStart) // up to 32 MiB
}

// framed cuts a file into messages.
type framed struct {
	in *bufio.Reader
	// take and refuse are those of a splitter. They are told the how manyth message it is.
	take    func(message int, document []byte) error
	refuse  func(message int, why string)
	longest int
}

// split gives messages away until one of them is cut off, or claims a length that none has: what follows cannot be found then.
func (f *framed) split() error {
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(f.longest))) //nolint:gosec // it is positive
	if err != nil {
		return err
	}
	defer unzip.Close()
	for n := 1; ; n++ {
		message, err := f.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			f.refuse(n, fmt.Sprintf("message %d: %v", n, err))
			return nil
		}
		if bytes.HasPrefix(message, []byte(zstdMagic)) {
			if message, err = unzip.DecodeAll(message, nil); err != nil {
				f.refuse(n, fmt.Sprintf("message %d cannot be decompressed: %v", n, err))
				continue
			}
		}
		if err := f.take(n, message); err != nil {
			return err
		}
	}
}

// next reads a message. Only at its very beginning io.EOF is the end of the file.
func (f *framed) next() ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(f.in, header[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(header[:]))
	if size > int64(f.longest) {
		return nil, errTooLong
	}
	message, err := io.ReadAll(io.LimitReader(f.in, size)) // and not a buffer of a size that is only claimed
	if err == nil && int64(len(message)) < size {
		err = io.ErrUnexpectedEOF
	}
	return message, err
}
