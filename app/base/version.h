/*
 * base/version.h -- the version of coupond and couponctl, and of what they speak: openapi.json says the same.
 */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define COUPONS_VERSION "1.1.0"

#endif
