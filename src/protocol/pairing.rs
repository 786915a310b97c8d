//! The pairing code that both screens show, the commitment that keeps either side from choosing it, and the digest of a delivery.
//!
//! Touches nothing.

use data_encoding::HEXLOWER;

use super::code::ALPHABET;
use super::encoding::{B64, Pin};
use super::transcript::Transcript;
use super::wire::JoinId;

/// What the joiner sends before it knows the founder's nonce: SHA-256 over `nJ`, so that it cannot choose `nJ` afterwards.
pub fn commitment(n_j: &B64<32>) -> B64<32> {
    B64(Transcript::new().raw(b"stratum-join/1 commit").raw(&n_j.0).finish())
}

/// The pairing code `XXX-XXX`: 30 bits over both keys, the registration and both nonces.
///
/// The same across restart, re-registration and self-upgrade, because every input is a stored value of one registration.
pub fn pairing_code(
    ca: &Pin,
    client_fp: &[u8; 32],
    join_id: &JoinId,
    n_j: &B64<32>,
    n_f: &B64<32>,
) -> String {
    let hash = Transcript::new()
        .lp(b"stratum-join/1 pairing")
        .lp(&ca.0)
        .lp(client_fp)
        .lp(join_id.as_str().as_bytes())
        .lp(&n_j.0)
        .lp(&n_f.0)
        .finish();
    let bits = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) >> 2;
    let symbol = |shift: u32| char::from(ALPHABET[(bits >> shift & 31) as usize]);
    [symbol(25), symbol(20), symbol(15), '-', symbol(10), symbol(5), symbol(0)].iter().collect()
}

/// What the joiner acknowledges: lower-case hex of SHA-256 over both parts of the delivery, exactly as received.
pub fn delivery_digest(node_yaml: &[u8], bundle: &[u8]) -> String {
    let hash = Transcript::new().lp32(b"stratum-join/1 delivery").lp32(node_yaml).lp32(bundle).finish();
    HEXLOWER.encode(&hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::config;
    use proptest::prelude::*;

    fn flip<const N: usize>(mut bytes: [u8; N], bit: usize) -> [u8; N] {
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    }

    proptest! {
        #![proptest_config(config())]

        // 30 bits: a collision by chance is one in 2^30 per case, so a failure is a broken rule.
        #[test]
        fn one_changed_bit_of_any_input_gives_another_pairing_code(seed: [u8; 32], which in 0..5, bit in 0_usize..256) {
            let part = |n: u8| Transcript::new().raw(&seed).raw(&[n]).finish();
            let id = |n: u8| JoinId::parse(&format!("nj-{}", &HEXLOWER.encode(&part(n))[..8])).unwrap();
            let of = |ca: [u8; 32], client: [u8; 32], join_id: &JoinId, n_j: [u8; 32], n_f: [u8; 32]| {
                pairing_code(&Pin(ca), &client, join_id, &B64(n_j), &B64(n_f))
            };
            let good = of(part(0), part(1), &id(2), part(3), part(4));
            prop_assert_eq!(good.len(), 7);
            let other = match which {
                0 => of(flip(part(0), bit), part(1), &id(2), part(3), part(4)),
                1 => of(part(0), flip(part(1), bit), &id(2), part(3), part(4)),
                2 => of(part(0), part(1), &id(5), part(3), part(4)),
                3 => of(part(0), part(1), &id(2), flip(part(3), bit), part(4)),
                _ => of(part(0), part(1), &id(2), part(3), flip(part(4), bit)),
            };
            prop_assert_ne!(good, other);
        }
    }
}
