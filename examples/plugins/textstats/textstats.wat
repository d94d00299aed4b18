;; Counts the words, lines and characters of a text. See README.md.
;; The arguments are compact JSON, {"text":"…"}; the manifest's schema lets no other form through.
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "{\22text\22:\22")             ;; how the arguments begin: 9 bytes
  (data (i32.const 16) "{\22words\22:")              ;; 9 bytes
  (data (i32.const 32) ",\22lines\22:")              ;; 9 bytes
  (data (i32.const 48) ",\22characters\22:")         ;; 14 bytes
  (data (i32.const 64) "give the arguments as {\22text\22: \22\E2\80\A6\22}")  ;; 37 bytes
  (global $heap (mut i32) (i32.const 1024))          ;; the answer is built from 256 on, arguments lie from 1024 on
  (global $out (mut i32) (i32.const 256))

  ;; A place for `len` bytes. Every call gets a new instance, so nothing is ever given back.
  (func (export "alloc") (param $len i32) (result i32)
    (local $start i32) (local $missing i32)
    (local.set $start (global.get $heap))
    (global.set $heap (i32.add (global.get $heap) (local.get $len)))
    (local.set $missing
      (i32.sub
        (i32.shr_u (i32.add (global.get $heap) (i32.const 65535)) (i32.const 16))
        (memory.size)))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then (if (i32.eq (memory.grow (local.get $missing)) (i32.const -1)) (then (unreachable)))))
    (local.get $start))

  (func (export "count") (param $ptr i32) (param $len i32) (result i64)
    (local $at i32) (local $end i32) (local $byte i32) (local $is_space i32) (local $is_in_word i32)
    (local $words i32) (local $lines i32) (local $characters i32) (local $last_is_newline i32)
    (if (i32.eqz (call $is_expected (local.get $ptr) (local.get $len)))
      (then (return (i64.or (i64.const 0x8000000000000000) (call $pack (i32.const 64) (i32.const 37))))))
    (local.set $at (i32.add (local.get $ptr) (i32.const 9)))
    (local.set $end (i32.sub (i32.add (local.get $ptr) (local.get $len)) (i32.const 2)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $byte (i32.load8_u (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        ;; The bytes after the first of a character begin with the bits 10.
        (if (i32.eq (i32.and (local.get $byte) (i32.const 0xC0)) (i32.const 0x80)) (then (br $next)))
        (local.set $characters (i32.add (local.get $characters) (i32.const 1)))
        (if (i32.eq (local.get $byte) (i32.const 92))  ;; a backslash
          (then
            (local.set $byte (call $unescape (i32.load8_u (local.get $at))))
            (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 117))  ;; \uXXXX
              (then (local.set $at (i32.add (local.get $at) (i32.const 4)))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))))
        (local.set $last_is_newline (i32.eq (local.get $byte) (i32.const 10)))
        (local.set $lines (i32.add (local.get $lines) (local.get $last_is_newline)))
        (local.set $is_space
          (i32.or
            (i32.eq (local.get $byte) (i32.const 32))
            (i32.and (i32.ge_u (local.get $byte) (i32.const 9)) (i32.le_u (local.get $byte) (i32.const 13)))))
        ;; A word begins where a space or the beginning is followed by something else.
        (local.set $words
          (i32.add (local.get $words)
            (i32.and (i32.eqz (local.get $is_space)) (i32.eqz (local.get $is_in_word)))))
        (local.set $is_in_word (i32.eqz (local.get $is_space)))
        (br $next)))
    (if (i32.and (i32.gt_u (local.get $characters) (i32.const 0)) (i32.eqz (local.get $last_is_newline)))
      (then (local.set $lines (i32.add (local.get $lines) (i32.const 1)))))
    (call $write (i32.const 16) (i32.const 9))
    (call $write_number (local.get $words))
    (call $write (i32.const 32) (i32.const 9))
    (call $write_number (local.get $lines))
    (call $write (i32.const 48) (i32.const 14))
    (call $write_number (local.get $characters))
    (call $write_byte (i32.const 125))
    (call $pack (i32.const 256) (i32.sub (global.get $out) (i32.const 256))))

  ;; Whether the arguments begin as they should and end with "}.
  (func $is_expected (param $ptr i32) (param $len i32) (result i32)
    (local $index i32)
    (if (i32.lt_u (local.get $len) (i32.const 11)) (then (return (i32.const 0))))
    (if (i32.ne  ;; the last two bytes, the first of them lowest: " is 0x22, } is 0x7D
          (i32.load16_u (i32.sub (i32.add (local.get $ptr) (local.get $len)) (i32.const 2)))
          (i32.const 0x7D22))
      (then (return (i32.const 0))))
    (loop $next
      (if (i32.ne
            (i32.load8_u (local.get $index))
            (i32.load8_u (i32.add (local.get $ptr) (local.get $index))))
        (then (return (i32.const 0))))
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $index) (i32.const 9))))
    (i32.const 1))

  ;; What stands behind a backslash, as far as it matters here: white space, or not.
  (func $unescape (param $byte i32) (result i32)
    (if (i32.eq (local.get $byte) (i32.const 110)) (then (return (i32.const 10))))  ;; n
    (if (i32.eq (local.get $byte) (i32.const 116)) (then (return (i32.const 9))))   ;; t
    (if (i32.eq (local.get $byte) (i32.const 114)) (then (return (i32.const 13))))  ;; r
    (if (i32.eq (local.get $byte) (i32.const 102)) (then (return (i32.const 12))))  ;; f
    (i32.const 120))

  (func $pack (param $ptr i32) (param $len i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get $ptr)) (i64.const 32)) (i64.extend_i32_u (local.get $len))))

  (func $write (param $from i32) (param $len i32)
    (memory.copy (global.get $out) (local.get $from) (local.get $len))
    (global.set $out (i32.add (global.get $out) (local.get $len))))

  (func $write_byte (param $byte i32)
    (i32.store8 (global.get $out) (local.get $byte))
    (global.set $out (i32.add (global.get $out) (i32.const 1))))

  (func $write_number (param $number i32)
    (if (i32.ge_u (local.get $number) (i32.const 10))
      (then (call $write_number (i32.div_u (local.get $number) (i32.const 10)))))
    (call $write_byte (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10)))))
)
