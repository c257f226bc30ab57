/* The seals of requests that come together: frame_seal.py.
 *
 * With the processor's own instructions for SHA-256; where it has none, Python's library is as
 * quick, and nothing is done here.
 */

#include "native_sends.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

enum { BLOCK_BYTES = 64, DIGEST_BYTES = 32, KEY_BYTES = 32 };

/* FIPS 180-4, 4.2.2 and 5.3.3. */
static const u32 constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
static const u32 first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static int look(void) {
    u32 a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

/* In a virtual machine each look is an exit to its host: tens of microseconds. */
static int is_able(void) {
    static int able = -1;
    if (able < 0) able = look();
    return able;
}

__attribute__((target("sha,sse4.1,ssse3"))) static void take_blocks(u32 *state, const u8 *at,
                                                                    i64 blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);
    for (; blocks; blocks--, at += BLOCK_BYTES) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int n = 0; n < 4; n++)
            w[n] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)at + n), swap);
#pragma GCC unroll 16
        for (int n = 0; n < 16; n++) {
            __m128i k = _mm_loadu_si128((const __m128i *)constants + n);
            __m128i sum = _mm_add_epi32(w[n & 3], k);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
            if (n >= 12) continue;
            __m128i later = w[(n + 3) & 3];
            __m128i next = _mm_sha256msg1_epu32(w[n & 3], w[(n + 1) & 3]);
            next = _mm_add_epi32(next, _mm_alignr_epi8(later, w[(n + 2) & 3], 4));
            w[n & 3] = _mm_sha256msg2_epu32(next, later);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low = _mm_shuffle_epi32(abef, 0x1B);
    high = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xF0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

/* Goes on from `state`, which has taken one block, with `size` bytes, to the end. */
static void digest(const u32 *state, const u8 *at, i64 size, u8 *out) {
    u8 last[2 * BLOCK_BYTES] = {0};
    u32 now[8];
    i64 whole = size / BLOCK_BYTES, rest = size % BLOCK_BYTES;
    i64 blocks = rest + 9 > BLOCK_BYTES ? 2 : 1;
    memcpy(now, state, sizeof now);
    take_blocks(now, at, whole);
    memcpy(last, at + whole * BLOCK_BYTES, (size_t)rest);
    last[rest] = 0x80;
    put64(last + blocks * BLOCK_BYTES - 8, 8 * (BLOCK_BYTES + size));
    take_blocks(now, last, blocks);
    for (int n = 0; n < 8; n++) put32(out + 4 * n, now[n]);
}

static void begin(u32 *state, const u8 *key, u8 pad) {
    u8 block[BLOCK_BYTES];
    memset(block, pad, sizeof block);
    for (int n = 0; n < KEY_BYTES; n++) block[n] ^= key[n];
    memcpy(state, first, sizeof first);
    take_blocks(state, block, 1);
}

/* Returns how many of the sealed requests in `rows`, from the first on, have the seal that is made
 * with `key`; -1: this processor cannot say. All of the seal is looked at, also of a wrong one. */
i64 tandem_good_seals(const u8 *data, const struct send *rows, i64 count, const u8 *key) {
    u32 inner[8], outer[8];
    if (!is_able()) return -1;
    begin(inner, key, 0x36);
    begin(outer, key, 0x5C);
    for (i64 n = 0; n < count; n++) {
        u8 right[DIGEST_BYTES], differs = 0;
        digest(inner, data + rows[n].content_at, rows[n].content_bytes, right);
        digest(outer, right, DIGEST_BYTES, right);
        const u8 *given = data + rows[n].signature_at;
        for (int place = 0; place < DIGEST_BYTES; place++) differs |= right[place] ^ given[place];
        if (differs) return n;
    }
    return count;
}

#else

i64 tandem_good_seals(const u8 *data, const struct send *rows, i64 count, const u8 *key) {
    (void)data, (void)rows, (void)count, (void)key;
    return -1;
}

#endif
