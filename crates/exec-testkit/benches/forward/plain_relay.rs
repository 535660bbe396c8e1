//! A relay that only reads and writes: two threads for each connection, and nothing of ours.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

/// What is moved at once: as much as a chunk of a stream.
const PIECE_BYTES: usize = 256 << 10;

/// Carries connections to this address; where it listens. It ends with the program.
pub(super) fn start(to: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let to = to.to_owned();
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(&to).expect("it listens");
            for socket in [&near, &far] {
                socket.set_nodelay(true).expect("it is a socket");
            }
            let back = (far.try_clone().expect("a descriptor"), near.try_clone().expect("a descriptor"));
            std::thread::spawn(move || carry(near, far));
            std::thread::spawn(move || carry(back.0, back.1));
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
