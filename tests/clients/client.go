// A checkout by a client that oapi-codegen made: client URL OPS-KEY STOREFRONT-KEY COUPON. Prints what it saw as JSON.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"coupons/client/api"
)

func connect(url, key string) *api.ClientWithResponses {
	client, err := api.NewClientWithResponses(url, api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
	must(err)
	return client
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func to[T any](value T) *T { return &value }

func main() {
	ctx, url, id := context.Background(), os.Args[1], os.Args[4]
	ops, shop := connect(url, os.Args[2]), connect(url, os.Args[3])

	var generate api.NewCoupon_Generate
	must(generate.FromNewCouponGenerate0(true))
	made, err := ops.CouponCreateWithResponse(ctx, &api.CouponCreateParams{}, api.NewCoupon{
		Id: &id, Title: "Made by Go", State: to(api.Active), Cap: &api.NewCap{Total: to(5)}, Generate: &generate,
		Discount: &api.NewDiscount{Kind: api.DiscountKindAmount, AmountMinor: to(500), Currency: to("EUR")},
		Metadata: &api.Metadata{"campaign": map[string]any{"n": 1}},
	})
	must(err)
	changed, err := ops.CouponChangeWithResponse(ctx, id, &api.CouponChangeParams{IfMatch: made.HTTPResponse.Header.Get("ETag")},
		api.CouponChange{Title: to("Changed")})
	must(err)
	checked, err := shop.RedemptionCheckWithResponse(ctx, id,
		api.Taking{User: "u-1", Order: &api.Order{AmountMinor: to(2000), Currency: to("EUR")}})
	must(err)
	resolved, err := shop.ResolveWithResponse(ctx,
		api.CodeOfUser{Code: id, User: "u-1", Order: &api.Order{AmountMinor: to(1580), Currency: to("EUR")}})
	must(err)
	found := resolved.JSON200.Items[0]
	order := &api.Order{Id: to("o-1"), AmountMinor: to(2000), Currency: to("EUR")}
	held, err := shop.RedemptionTakeWithResponse(ctx, id, &api.RedemptionTakeParams{IdempotencyKey: "hold"},
		api.Taking{User: "u-1", State: to(api.TakeStateReserved), Order: order})
	must(err)
	redeemed, err := shop.RedemptionRedeemWithResponse(ctx, id, held.JSON201.Id, &api.RedemptionRedeemParams{IdempotencyKey: "redeem"},
		api.Step{})
	must(err)
	reversed, err := shop.RedemptionReverseWithResponse(ctx, id, held.JSON201.Id, &api.RedemptionReverseParams{}, api.RedemptionReverseJSONRequestBody{})
	must(err)
	refused, err := shop.RedemptionTakeWithResponse(ctx, id+"-never", &api.RedemptionTakeParams{IdempotencyKey: "never"},
		api.Taking{User: "u-1"})
	must(err)
	read, err := shop.CouponGetWithResponse(ctx, id, &api.CouponGetParams{})
	must(err)
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"title": changed.JSON200.Title, "discount_minor": held.JSON201.DiscountMinor,
		"states":   []any{held.JSON201.State, redeemed.JSON200.State, reversed.JSON200.State},
		"refused":  refused.ApplicationproblemJSON404.Code,
		"campaign": read.JSON200.Metadata["campaign"], "total": read.JSON200.Cap.Total,
		"checked": []any{checked.JSON200.Ok, checked.JSON200.DiscountMinor, checked.JSON200.Remaining},
		"found":   []any{found.Problem, found.Reason, found.MissingMinor},
	}))
}
