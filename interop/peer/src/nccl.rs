//! Stands in for the two native functions that an agent calls from 0.8 on: it asks the NCCL
//! library for its version before it says Hello.  `PEER_NCCL` holds the answer as NCCL packs it
//! (22703 is 2.27.3); unset, the question fails and the Hello names no version.

use std::ffi::{CString, c_char};
use std::ptr::null_mut;

#[unsafe(no_mangle)]
extern "C" fn flodl_nccl_runtime_version(version: *mut i32) -> *mut c_char {
    let answer = std::env::var("PEER_NCCL").ok().and_then(|text| text.parse().ok());
    let Some(number) = answer else {
        return c"PEER_NCCL holds no version".to_owned().into_raw();
    };
    // SAFETY: the caller hands in a valid place for one i32.
    unsafe { version.write(number) };
    null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn flodl_free_string(text: *mut c_char) {
    // SAFETY: the only string the crate can have got from native code is the one made above.
    drop(unsafe { CString::from_raw(text) });
}
