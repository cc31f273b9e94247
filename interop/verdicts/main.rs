//! flodl's own decoder as a filter: a line `KEY STREAM` in, a line of what it says out.
//!
//! | line                          | what became of the first frame of the stream                   |
//! | ----------------------------- | -------------------------------------------------------------- |
//! | `end`                         | the stream ended before there was one                          |
//! | `frame WHY`                   | it was refused before its payload was decoded                  |
//! | `payload WHY`                 | its payload was refused                                        |
//! | `taken KIND CONSUMED PAYLOAD` | its kind, its size, and its message as flodl would write it    |
//!
//! Key, stream and payload are hex.  A frame that ends the process gets no line.

use std::io::{self, BufRead, Cursor, Write};

use flodl::distributed::wire::{ControlFrame, JoinMsgWire, MsgKind, SessionSalt};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (key, stream) = line.split_once(' ').expect("a line is KEY STREAM");
        let key = unhex(key).try_into().expect("a key has 16 bytes");
        writeln!(out, "{}", verdict(&key, unhex(stream)))?;
        // What comes next may be the end of this process.
        out.flush()?;
    }
    Ok(())
}

fn verdict(key: &SessionSalt, stream: Vec<u8>) -> String {
    let mut stream = Cursor::new(stream);
    let frame = match ControlFrame::read_from(&mut stream, key) {
        Ok(Some(frame)) => frame,
        Ok(None) => return String::from("end"),
        Err(why) => return one_line(format!("frame {why}")),
    };
    let message: JoinMsgWire = match frame.decode() {
        Ok(message) => message,
        Err(why) => return one_line(format!("payload {why}")),
    };
    let again = ControlFrame::encode(key, MsgKind::Join, &message).expect("it was decoded");
    let payload: String = again.payload.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("taken {} {} {payload}", frame.kind as u32, stream.position())
}

fn one_line(text: String) -> String {
    text.replace(['\n', '\r'], " ")
}

fn unhex(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex digits") as u8;
    digits.as_bytes().chunks_exact(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}
