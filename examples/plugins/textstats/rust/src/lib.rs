//! Counts the words, lines and characters of a text: the same plugin as textstats.wat, in Rust without dependencies.

const REFUSAL: u64 = 1 << 63;

/// A place for `len` bytes. Every call gets a new instance, so nothing is ever given back.
#[no_mangle]
pub extern "C" fn alloc(len: usize) -> *mut u8 {
    Box::leak(vec![0_u8; len].into_boxed_slice()).as_mut_ptr()
}

/// # Safety
/// The host gives a place that it got from `alloc` and filled.
#[no_mangle]
pub unsafe extern "C" fn count(ptr: *const u8, len: usize) -> u64 {
    let arguments = std::slice::from_raw_parts(ptr, len);
    match text_of(arguments) {
        Some(text) => answer(stats(text), 0),
        None => answer("give the arguments as {\"text\": \"…\"}".to_string(), REFUSAL),
    }
}

/// What stands between `{"text":"` and `"}`, still escaped.
fn text_of(arguments: &[u8]) -> Option<&[u8]> {
    arguments.strip_prefix(b"{\"text\":\"")?.strip_suffix(b"\"}")
}

fn stats(text: &[u8]) -> String {
    let (mut words, mut lines, mut characters) = (0_u32, 0_u32, 0_u32);
    let (mut is_in_word, mut last_is_newline) = (false, true);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte & 0xC0 == 0x80 {
            continue; // Not the first byte of a character.
        }
        characters += 1;
        let plain = if byte == b'\\' { unescape(&mut bytes) } else { byte };
        last_is_newline = plain == b'\n';
        lines += u32::from(last_is_newline);
        let is_space = plain == b' ' || (9..=13).contains(&plain);
        words += u32::from(!is_space && !is_in_word);
        is_in_word = !is_space;
    }
    lines += u32::from(!last_is_newline);
    format!("{{\"words\":{words},\"lines\":{lines},\"characters\":{characters}}}")
}

/// What an escape stands for, as far as it matters here: white space, or not.
fn unescape(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    match bytes.next() {
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'r') => b'\r',
        Some(b'f') => 12,
        Some(b'u') => {
            bytes.nth(3);
            b'x'
        }
        _ => b'x',
    }
}

fn answer(text: String, bit: u64) -> u64 {
    let bytes = Box::leak(text.into_bytes().into_boxed_slice());
    bit | ((bytes.as_ptr() as u64) << 32) | bytes.len() as u64
}
